"""The chain of verdicts on one answer."""

from __future__ import annotations

from dataclasses import replace

from memtrace_otel.annotate.identity import span_id, succeed, trace_id
from memtrace_otel.annotate.marker import marker
from memtrace_otel.model import OperationSpan, Verdict
from tests.unit.annotate.conftest import ANSWER, UPDATE, verdict_on


def settle(verdict: Verdict, trace: list[OperationSpan]) -> Verdict:
    """Settle a verdict and store its marker."""
    settled = succeed(verdict, trace)
    if not any(span.attributes.get("memtrace.attribution.id") == settled.attribution_id for span in trace):
        trace.append(marker(settled, UPDATE))
    return settled


def test_same_verdict_keeps_its_id_and_another_one_replaces_it_even_when_it_returns() -> None:
    trace = [ANSWER]
    update, extraction = verdict_on(UPDATE), verdict_on(UPDATE, failure_type="extraction")
    first, again = settle(update, trace), settle(update, trace)
    second, third, still = settle(extraction, trace), settle(update, trace), settle(update, trace)
    assert first == again
    assert first.replaces == ""
    assert second.replaces == first.attribution_id
    assert third.replaces == second.attribution_id
    assert still == third
    assert len({first.attribution_id, second.attribution_id, third.attribution_id}) == 3
    assert len(trace) == 1 + 3


def test_a_verdict_knows_the_types_of_those_before_it_on_its_answer() -> None:
    trace = [ANSWER]
    update, moved = verdict_on(UPDATE), verdict_on(UPDATE, variable="memory:m-2")
    extraction = verdict_on(UPDATE, failure_type="extraction")
    settled = [settle(verdict, trace) for verdict in (update, update, moved, extraction, update)]
    types = [frozenset[str](), frozenset[str](), {"update"}, {"update"}, {"update", "extraction"}]
    assert [verdict.earlier_types for verdict in settled] == types


def test_a_verdict_that_is_complete_now_replaces_the_one_that_was_not() -> None:
    trace = [ANSWER]
    partial, whole = verdict_on(UPDATE, complete=False), verdict_on(UPDATE, complete=True)
    first, second, *later = [settle(verdict, trace) for verdict in (partial, whole, whole, partial, whole)]
    assert second.replaces == first.attribution_id != second.attribution_id
    assert {verdict.attribution_id for verdict in later} == {second.attribution_id}
    assert settle(first, trace).attribution_id == second.attribution_id  # kept by another database, which knows less
    assert len(trace) == 1 + 2


def test_an_id_given_by_attribution_is_kept() -> None:
    trace = [ANSWER]
    assert settle(verdict_on(UPDATE, attribution_id="run-1"), trace).attribution_id == "run-1"
    later = settle(verdict_on(UPDATE, attribution_id="run-2"), trace)
    assert later.replaces == "run-1"
    assert settle(verdict_on(UPDATE, attribution_id="run-2"), trace) == later


def test_markers_of_another_answer_and_spans_of_the_application_do_not_count() -> None:
    verdict = verdict_on(UPDATE)
    stored = marker(replace(verdict, attribution_id="other"), UPDATE)
    foreign = [
        replace(stored, attributes={**stored.attributes, "memtrace.failure.answer": UPDATE.origin}),
        replace(stored, instrumentation_scope="somebody.else"),
    ]
    assert succeed(verdict, foreign).replaces == ""


def test_ids_differ_by_verdict_and_part_and_are_valid() -> None:
    one, two = verdict_on(UPDATE, attribution_id="1"), verdict_on(UPDATE, attribution_id="2")
    ids = {span_id(one, "root"), span_id(one, "step 0"), span_id(two, "root")}
    assert len(ids) == 3
    assert all(len(id) == 16 and int(id, 16) for id in ids)
    assert trace_id(one) != trace_id(two)
    assert len(trace_id(one)) == 32
