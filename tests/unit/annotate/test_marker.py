"""Where a marker lies, how long it lasts, what it says."""

from __future__ import annotations

from dataclasses import replace

import pytest

from memtrace_otel.annotate.attributes import clip
from memtrace_otel.annotate.marker import causing_marker, marker
from memtrace_otel.model import Step
from memtrace_otel.otlp import decode_request, encode_request
from tests.unit.annotate.conftest import ANSWER, ASKED, RESOURCE, SECOND, TOLD, UPDATE, span, verdict_on


def test_marker_lies_in_the_last_microsecond_of_the_answer_when_the_cause_is_elsewhere() -> None:
    made = marker(verdict_on(UPDATE, attribution_id="1"), UPDATE)
    assert (made.trace_id, made.parent_id, made.name) == (ASKED, ANSWER.span_id, "memtrace.attribution update")
    assert (made.start, made.end) == (102 * SECOND - 1000, 102 * SECOND)
    assert made.resource == RESOURCE
    assert (made.instrumentation_scope, made.kind) == ("memtrace_otel.attribution", "")
    assert [(link.trace_id, link.span_id, link.attributes["memtrace.link.type"]) for link in made.links] == [
        (TOLD, UPDATE.span_id, "attributed_to")
    ]


def test_marker_is_a_child_of_the_decisive_operation_of_the_same_trace() -> None:
    search = span(ASKED, "c" * 16, "search_memory", 99 * SECOND, 100 * SECOND, kind="retrieve")
    verdict = verdict_on(search, failure_type="retrieval")
    made = marker(verdict, search)
    assert (made.parent_id, made.end, made.links) == (search.span_id, 100 * SECOND, ())
    assert causing_marker(verdict, search) is None


def test_marker_without_a_decisive_operation_sits_on_the_answer() -> None:
    verdict = verdict_on(None, failure_type="unknown", variable="")
    made = marker(verdict, None)
    assert (made.parent_id, made.links) == (ANSWER.span_id, ())
    assert not {"memtrace.failure.span_id", "memtrace.failure.when", "memtrace.failure.variable"} & set(made.attributes)
    assert causing_marker(verdict, None) is None


def test_causing_trace_gets_a_marker_of_its_own_that_a_search_for_failing_answers_does_not_find() -> None:
    verdict = verdict_on(UPDATE, attribution_id="1")
    made = causing_marker(verdict, UPDATE)
    assert made is not None
    assert (made.trace_id, made.parent_id, made.end) == (TOLD, UPDATE.span_id, 11 * SECOND)
    assert made.attributes == marker(verdict, UPDATE).attributes
    assert made.resource == {"service.name": "memtrace-attribution", "host.name": "laptop"}
    assert made.span_id != marker(verdict, UPDATE).span_id


def test_the_marker_in_the_causing_trace_of_a_canary_is_known_by_its_service() -> None:
    update = replace(UPDATE, resource={"service.name": "memtrace-canary"})
    made = causing_marker(verdict_on(update), update)
    assert made is not None
    assert made.service == "memtrace-canary"


def test_every_attribute_of_the_contract_is_there() -> None:
    made = marker(
        verdict_on(UPDATE, attribution_id="1", replaces="0", advice="Keep both.", when=10 * SECOND + 5000), UPDATE
    )
    assert made.attributes == {
        "memtrace.failure.type": "update",
        "memtrace.failure.trace_id": TOLD,
        "memtrace.failure.span_id": UPDATE.span_id,
        "memtrace.failure.answer": ANSWER.origin,
        "memtrace.failure.when": "1970-01-01T00:00:10.000005Z",
        "memtrace.failure.operation": "update_memory",
        "memtrace.failure.variable": "memory:m-1",
        "memtrace.failure.confidence": 0.875,
        "memtrace.failure.reason": "The update replaced Lisbon by Porto.",
        "memtrace.failure.advice": "Keep both.",
        "memtrace.failure.evidence": ["source|message:7|", f"loss|memory:m-1|{UPDATE.origin}"],
        "memtrace.failure.alternatives": [f"retrieval|{ANSWER.origin}|0.125", "unknown||0.05"],
        "memtrace.failure.complete": True,
        "memtrace.attribution.id": "1",
        "memtrace.attribution.method": "rules",
        "memtrace.attribution.version": "0.1.0",
        "memtrace.attribution.replaces": "0",
    }
    assert made.incomplete == ()


def test_status_is_red_and_short_unless_turned_off(monkeypatch: pytest.MonkeyPatch) -> None:
    verdict = verdict_on(UPDATE, reason="é" * 150)
    made = marker(verdict, UPDATE)
    assert (made.status, made.status_message) == ("error", f"update: {'é' * 100}")
    monkeypatch.setenv("MEMTRACE_MARKER_STATUS", "unset")
    made = marker(verdict, UPDATE)
    assert (made.status, made.status_message) == ("unset", "")


def test_long_reason_and_evidence_are_cut_between_characters_and_said_to_be() -> None:
    steps = tuple(Step("step", f"memory:{n}", UPDATE.origin) for n in range(500))
    made = marker(verdict_on(UPDATE, reason="x" + "é" * 1000, evidence=steps), UPDATE)
    reason, evidence = made.attributes["memtrace.failure.reason"], made.attributes["memtrace.failure.evidence"]
    assert isinstance(reason, str)
    assert isinstance(evidence, list)
    assert len(reason.encode()) == 1899
    assert 10 < len(evidence) < 500
    assert sum(len(str(item)) for item in evidence) <= 1536
    assert made.incomplete == ("truncated",)


@pytest.mark.parametrize(("start", "end", "expected"), [(5, 400, (5, 400)), (7, 7, (7, 8)), (9, 3, (9, 10))])
def test_marker_in_a_very_short_parent_has_a_duration_and_starts_inside(
    start: int, end: int, expected: tuple[int, int]
) -> None:
    short = span(ASKED, "c" * 16, "search_memory", start, end)
    made = marker(verdict_on(short), short)
    assert (made.start, made.end) == expected


def test_clip_keeps_whole_characters_and_survives_lone_surrogates() -> None:
    assert clip("aé", 2) == "a"
    assert clip("aé", 3) == "aé"
    assert clip("\ud800b", 9) == "?b"


def test_a_marker_stays_within_the_times_that_otlp_can_hold() -> None:
    last = 2**64 - 1
    timeless = span(ASKED, "c" * 16, "search_memory", last, last, kind="retrieve")
    made = marker(verdict_on(timeless), timeless)
    assert (made.start, made.end) == (last - 1, last)
    assert decode_request(encode_request([made])) == [made]
