"""What of the graph becomes part of the story of a fact."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memtrace_otel.model import Verdict
from memtrace_otel.report.evolution import Evolution, FlowKind, Moment, Stage
from memtrace_otel.report.follow import Follower
from memtrace_otel.report.text import Mark
from tests.unit.report.conftest import Diagnosed


def follow(diagnosed: Diagnosed, story: str) -> Evolution:
    graph, verdicts = diagnosed
    return Follower(graph).follow(verdicts[story])


def only(evolution: Evolution, stage: Stage) -> Moment:
    (moment,) = (m for m in evolution.moments if m.stage is stage)
    return moment


def flagged(evolution: Evolution) -> Moment:
    (moment,) = (m for m in evolution.moments if m.flag)
    return moment


def flows(evolution: Evolution, kind: FlowKind) -> list[tuple[str, str]]:
    titles = {m.key: m.title for m in evolution.moments}
    return [(titles[f.source], titles[f.target]) for f in evolution.flows if f.kind is kind]


@pytest.mark.parametrize(
    ("story", "stage", "flag"),
    [
        ("overwritten", Stage.RECORD, "Lost here: overwritten"),
        ("not_extracted", Stage.PROCESSING, "Lost here: not extracted"),
        ("deleted", Stage.RECORD, "Lost here: deleted"),
        ("not_retrieved", Stage.SEARCH, "Lost here: not retrieved"),
        ("ignored", Stage.ANSWER, "Went wrong here: ignored"),
        ("often_updated", Stage.RECORD, "Lost here: overwritten"),
    ],
)
def test_the_decisive_moment_alone_is_flagged(diagnosed: Diagnosed, story: str, stage: Stage, flag: str) -> None:
    moment = flagged(follow(diagnosed, story))
    assert (moment.stage, moment.flag) == (stage, flag)


@pytest.mark.parametrize(
    ("failure_type", "flag"), [("annotation", "Expected answer is wrong"), ("judge", "Went wrong here: misjudged")]
)
def test_what_is_no_fault_of_memory_is_flagged_on_the_judgement(
    diagnosed: Diagnosed, failure_type: str, flag: str
) -> None:
    graph, verdicts = diagnosed
    moment = flagged(Follower(graph).follow(replace(verdicts["wrong_gold"], failure_type=failure_type)))
    assert (moment.stage, moment.flag) == (Stage.JUDGEMENT, flag)


def test_the_path_goes_from_message_to_judgement_in_time_order(diagnosed: Diagnosed) -> None:
    evolution = follow(diagnosed, "overwritten")
    first_trace = [m.title for m in evolution.moments if m.trace_id == evolution.moments[0].trace_id]
    assert first_trace == ["message", "memtrace.extract", "v1 · create"]
    last_trace = [m.title for m in evolution.moments if m.trace_id == evolution.moments[-1].trace_id]
    assert last_trace == ["question", "search_memory", "chat demo-model", "judged incorrect"]
    assert [m.time for m in evolution.moments] == sorted(m.time for m in evolution.moments)


def test_an_update_shows_the_words_it_lost_and_the_new_ones(diagnosed: Diagnosed) -> None:
    (runs,) = flagged(follow(diagnosed, "overwritten")).paragraphs
    assert "Thursday 19 March at 10:30" in " ".join(run.text for run in runs if run.mark is Mark.LOST)
    assert "tram 4" in " ".join(run.text for run in runs if run.mark is Mark.NEW)


def test_a_write_of_the_application_is_shown_with_what_was_said_in_that_turn(diagnosed: Diagnosed) -> None:
    evolution = follow(diagnosed, "overwritten")
    assert flows(evolution, FlowKind.SAME_TURN) == [("memtrace.extract", "v2 · update")]
    assert flows(evolution, FlowKind.SUPERSEDES) == [("v1 · create", "v2 · update")]
    assert flows(evolution, FlowKind.READ) == [("v2 · update", "search_memory")]


def test_a_tombstone_strikes_out_what_was_deleted_and_is_read_by_nobody(diagnosed: Diagnosed) -> None:
    evolution = follow(diagnosed, "deleted")
    tombstone = flagged(evolution)
    assert tombstone.tombstone
    assert [run.mark for paragraph in tombstone.paragraphs for run in paragraph] == [Mark.LOST]
    assert "blue flower pot" in tombstone.text
    assert flows(evolution, FlowKind.READ) == flows(evolution, FlowKind.MISSED) == []


def test_a_record_that_the_search_missed_is_joined_to_it_by_a_missed_flow(diagnosed: Diagnosed) -> None:
    evolution = follow(diagnosed, "not_retrieved")
    assert flows(evolution, FlowKind.MISSED) == [("v1 · create", "search_memory")]
    assert next(run.text for run in flagged(evolution).paragraphs[-1] if run.mark is Mark.LOST).endswith("pier 4.")


def test_an_extraction_shows_what_it_took_and_what_it_left(diagnosed: Diagnosed) -> None:
    moment = flagged(follow(diagnosed, "not_extracted"))
    assert moment.text == "Mira makes a risotto for friends on Sunday 8 March.\ncashews"
    assert [run.mark for run in moment.paragraphs[-1]] == [Mark.LOST]


def test_a_long_history_keeps_the_first_the_last_and_those_around_the_loss(diagnosed: Diagnosed) -> None:
    evolution = follow(diagnosed, "often_updated")
    versions = [m for m in evolution.moments if m.stage is Stage.RECORD]
    assert [m.title.split()[0] for m in versions] == ["v1", "v3", "v4", "v5"]
    assert [m.superseded for m in versions] == [True, True, True, False]
    assert next(f.label for f in evolution.flows if f.kind is FlowKind.SUPERSEDES) == "1 more"


def test_without_contents_the_lineage_is_still_shown(uncaptured: Diagnosed) -> None:
    evolution = follow(uncaptured, "overwritten")
    assert [m.title for m in evolution.moments if m.stage is Stage.RECORD] == ["v1 · create", "v2 · update"]
    assert "content not captured" in only(evolution, Stage.QUESTION).text


def test_an_operation_that_is_not_recorded_is_shown_as_missing(diagnosed: Diagnosed) -> None:
    graph, verdicts = diagnosed
    lost = replace(verdicts["not_extracted"], trace_id="e" * 32, span_id="e" * 16, operation="memtrace.extract")
    moment = flagged(Follower(graph).follow(lost))
    assert moment.ghost
    assert moment.title == "memtrace.extract"


def test_an_unknown_failure_type_flags_its_operation_in_plain_words(diagnosed: Diagnosed) -> None:
    graph, verdicts = diagnosed
    moment = flagged(Follower(graph).follow(replace(verdicts["overwritten"], failure_type="solar flare")))
    assert (moment.stage, moment.flag) == (Stage.RECORD, "Decisive operation")


def test_a_verdict_without_any_operation_flags_nothing(diagnosed: Diagnosed) -> None:
    graph, verdicts = diagnosed
    verdict: Verdict = replace(verdicts["ignored"], failure_type="unknown", trace_id="", span_id="", evidence=())
    evolution = Follower(graph).follow(verdict)
    assert [m for m in evolution.moments if m.flag] == []
    assert only(evolution, Stage.ANSWER)
