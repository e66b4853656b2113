"""A record that nobody recorded creating (the first day of every user) is known by what its readers saw."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest

from memtrace_otel.annotate import MemoryLog
from memtrace_otel.attribution import attribute_trace
from memtrace_otel.graph import build_graph, load_graph
from memtrace_otel.model import OperationSpan, Variable, Verdict, content_digest
from memtrace_otel.otlp import encode_request
from memtrace_otel.pipeline.diagnose import diagnose, record
from memtrace_otel.report.evolution import Stage
from memtrace_otel.report.follow import Follower
from memtrace_otel.semconv import Action, FailureType, OpKind, Role
from memtrace_otel.sources import SqliteStore
from memtrace_otel.testing import contract_span
from tests.unit.sources.listed_source import ListedSource

ANN, ASKED, ELSEWHERE = "a" * 16, 9, 5
QUERY = Variable("query:q", Role.QUERY, content="When is the trip to Lisbon?")
OLD, NEW = "The trip to Lisbon is 17 to 19 April", "The trip to Lisbon is from 20 to 22 April"
MISSING = f"{77:032x}-{77:016x}"

origins = pytest.mark.parametrize("origin", ["", MISSING], ids=["no origin", "an origin that is not there"])
kept_ways = pytest.mark.parametrize("kept", ["in a file", "in a backend"])


def held(content: str, role: str = Role.OTHER, origin: str = "", ref: str = "memory:17", action: str = "") -> Variable:
    return Variable(ref, role, origin, content_digest(content), content, action=action)


def old(role: str, origin: str, content: str = OLD) -> Variable:
    return held(content, role, origin)


def write(made: Variable, *read: Variable, trace: int = 1, kind: str = OpKind.UPDATE) -> OperationSpan:
    message = Variable(f"message:{trace}", Role.MESSAGE, content="I like trains")
    return contract_span(trace, 1, trace, kind=kind, scope=ANN, inputs=(message, *read), outputs=(made,))


def search(trace: int, at: int, *hits: Variable) -> OperationSpan:
    return contract_span(trace, 1, at, kind=OpKind.RETRIEVE, scope=ANN, inputs=(QUERY, *hits))


def answer(text: str, *hits: Variable) -> list[OperationSpan]:
    given = Variable("answer:a", content=text)
    context = tuple(replace(hit, role=Role.CONTEXT) for hit in hits)
    respond = contract_span(ASKED, 8, 30, kind=OpKind.RESPOND, inputs=(QUERY, *context), outputs=(given,))
    judged = (
        QUERY,
        Variable("answer:a", Role.ANSWER, respond.origin),
        Variable("expected:e", Role.EXPECTED, content="17 to 19 April"),
    )
    label = {"gen_ai.evaluation.score.label": "fail"}
    judge = contract_span(10, 1, 40, kind=OpKind.JUDGE, inputs=judged, attributes=label)
    return [search(ASKED, 20, *hits), respond, judge]


def verdict_on(spans: list[OperationSpan], kept: str, path: Path) -> Verdict:
    trace_id = f"{ASKED:032x}"
    if kept == "in a backend":
        [found] = diagnose(ListedSource().tell(spans), MemoryLog(), [trace_id])
        [verdict] = found.verdicts
        return verdict
    with SqliteStore.open(path / "a.db") as store:
        store.add_request(encode_request(spans))
        [verdict] = attribute_trace(load_graph(store, trace_id), trace_id)
    return verdict


def of(verdict: Verdict) -> tuple[str, str, bool]:
    return verdict.failure_type, f"{verdict.trace_id}-{verdict.span_id}", verdict.complete


@origins
@kept_ways
def test_the_update_that_overwrote_an_older_record_is_blamed(tmp_path: Path, origin: str, kept: str) -> None:
    update = write(held(NEW, action=Action.UPDATE), old(Role.PREVIOUS, origin))
    hit = held(NEW, Role.HIT, update.origin)
    verdict = verdict_on([update, *answer("From 20 to 22 April", hit)], kept, tmp_path)
    assert of(verdict) == (FailureType.UPDATE, update.origin, False)
    assert [step.origin for step in verdict.evidence] == [origin, update.origin]


def test_later_spans_change_a_verdict_with_unrecorded_evidence(tmp_path: Path) -> None:
    spoiled = write(held(NEW, action=Action.UPDATE), old(Role.PREVIOUS, MISSING))
    mended = write(held(OLD, action=Action.UPDATE), held(NEW, Role.PREVIOUS, spoiled.origin), trace=2)
    again = write(held(NEW, action=Action.UPDATE), old(Role.PREVIOUS, mended.origin), trace=3)
    asked = answer("From 20 to 22 April", held(NEW, Role.HIT))
    found: list[Verdict] = []
    with SqliteStore.open(tmp_path / "a.db") as store:
        for spans in ([spoiled, *asked], [mended, again], []):
            store.add_request(encode_request(spans))
            found += [made.verdict for diagnosis in diagnose(store, store) for made in record(store, diagnosis)]
    first, changed, same = found
    assert MISSING in [step.origin for step in first.evidence]
    assert of(first) == (FailureType.UPDATE, spoiled.origin, False)
    assert of(changed)[:2] == (FailureType.UPDATE, again.origin)
    assert (changed.replaces, same.attribution_id) == (first.attribution_id, changed.attribution_id)


@origins
@kept_ways
def test_the_deletion_of_an_older_record_is_blamed(tmp_path: Path, origin: str, kept: str) -> None:
    delete = write(Variable("memory:17", action=Action.DELETE), old(Role.PREVIOUS, origin), kind=OpKind.DELETE)
    verdict = verdict_on([delete, *answer("I do not know")], kept, tmp_path)
    assert of(verdict) == (FailureType.DELETION, delete.origin, False)


@kept_ways
@pytest.mark.parametrize("action", [Action.UPDATE, Action.DERIVE])
def test_an_earlier_search_shows_the_version_that_a_write_by_name_replaced(
    tmp_path: Path, kept: str, action: str
) -> None:
    before = search(ELSEWHERE, 2, old(Role.HIT, ""))
    update = write(held(NEW, action=action), trace=3)
    hit = held(NEW, Role.HIT, update.origin)
    verdict = verdict_on([before, update, *answer("From 20 to 22 April", hit)], kept, tmp_path)
    assert of(verdict) == (FailureType.UPDATE, update.origin, False)


@pytest.mark.parametrize("linked", [False, True])
def test_a_verdict_on_an_unrecorded_write_is_never_complete(tmp_path: Path, linked: bool) -> None:
    likes = held("Likes trains", ref="memory:18", action=Action.ADD)
    added = write(likes, trace=2, kind=OpKind.CREATE)
    delete = write(held("", action=Action.DELETE), old(Role.PREVIOUS, ""), trace=3, kind=OpKind.DELETE)
    hits = [held("Likes trains", Role.HIT, added.origin, "memory:18")] if linked else []
    verdict = verdict_on([added, delete, *answer("I do not know", *hits)], "in a file", tmp_path)
    assert of(verdict) == (FailureType.DELETION, delete.origin, False)


@kept_ways
def test_the_content_that_an_update_read_counts_before_later_reads(tmp_path: Path, kept: str) -> None:
    """Nobody recorded who wrote either: the two are one version of the graph, that readers saw as several."""
    update = write(held(NEW, action=Action.UPDATE), old(Role.PREVIOUS, ""))
    odd = old(Role.HIT, "", content="Lisbon: to be fixed")
    verdict = verdict_on([update, *answer("From 20 to 22 April", odd)], kept, tmp_path)
    assert of(verdict) == (FailureType.UPDATE, update.origin, False)


@pytest.mark.parametrize("ref", ["memory:17", "memory:line-1"], ids=["its name", "another name"])
@pytest.mark.parametrize("words", [OLD, f"- {OLD}", "Lisbon trip"])
def test_a_paraphrase_by_a_reader_is_no_record(tmp_path: Path, ref: str, words: str) -> None:
    """It neither overwrites what was written nor keeps it alive."""
    added = write(held(OLD, action=Action.ADD), kind=OpKind.CREATE)
    shown = search(ELSEWHERE, 5, held(words, Role.HIT, ref=ref))
    gone = write(held("", action=Action.DELETE), old(Role.PREVIOUS, added.origin), trace=7, kind=OpKind.DELETE)
    verdict = verdict_on([added, shown, gone, *answer("I do not know")], "in a file", tmp_path)
    assert of(verdict)[:2] == (FailureType.DELETION, gone.origin)


@pytest.mark.parametrize("trace", [1, 3])
def test_equal_ids_in_two_memories_are_two_records(tmp_path: Path, trace: int) -> None:
    """The report draws the one that the verdict is about."""
    update = write(held(NEW, action=Action.UPDATE), old(Role.PREVIOUS, ""))
    tea = held("Bob likes tea", Role.PREVIOUS)
    other = replace(write(held("Bob likes coffee", action=Action.UPDATE), tea, trace=trace), scope="b" * 16)
    other = replace(other, span_id=f"{2:016x}")
    graph = build_graph([update, other, *answer("From 20 to 22 April", held(NEW, Role.HIT, update.origin))])
    [verdict] = attribute_trace(graph, f"{ASKED:032x}")
    assert of(verdict) == (FailureType.UPDATE, update.origin, False)
    told = [m.text for m in Follower(graph).follow(verdict).moments if m.stage is Stage.RECORD]
    assert len(told) == 2
    assert not any("Bob" in text for text in told)


def test_the_report_marks_unrecorded_writes() -> None:
    update = write(held(NEW, action=Action.UPDATE), old(Role.PREVIOUS, ""))
    graph = build_graph([update, *answer("From 20 to 22 April", held(NEW, Role.HIT, update.origin))])
    [verdict] = attribute_trace(graph, f"{ASKED:032x}")
    before, after = (m for m in Follower(graph).follow(verdict).moments if m.stage is Stage.RECORD)
    assert (before.ghost, after.ghost, before.flag, bool(after.flag)) == (True, False, "", True)
    assert "writing not recorded" in before.title


def test_an_update_of_a_lost_write_is_blamed_and_the_write_is_marked_unrecorded() -> None:
    added = write(held(OLD, action=Action.ADD), kind=OpKind.CREATE)
    update = write(held(NEW, action=Action.UPDATE), old(Role.PREVIOUS, MISSING, "Lisbon, dates open"), trace=3)
    graph = build_graph([added, update, *answer("From 20 to 22 April", held(NEW, Role.HIT, update.origin))])
    [verdict] = attribute_trace(graph, f"{ASKED:032x}")
    assert of(verdict) == (FailureType.UPDATE, "-", False)
    assert verdict.evidence[-1].origin == MISSING
    moments = [m for m in Follower(graph).follow(verdict).moments if m.stage is Stage.RECORD]
    assert [(m.ghost, bool(m.flag)) for m in moments] == [(False, False), (True, True), (False, False)]


def test_every_order_of_the_spans_gives_the_same_verdict(tmp_path: Path) -> None:
    update = write(held(NEW, action=Action.UPDATE), old(Role.PREVIOUS, ""))
    spans = [update, *answer("From 20 to 22 April", held(NEW, Role.HIT, update.origin))]
    found = set[tuple[str, str, bool]]()
    for number, order in enumerate(itertools.permutations(spans)):
        (folder := tmp_path / str(number)).mkdir()
        found.add(of(verdict_on(list(order), "in a file", folder)))
    assert len(found) == 1
