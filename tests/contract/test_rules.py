"""Every planted fault is named with type and operation, in every kind of system; correct runs give no failure."""

from __future__ import annotations

import random
import re
from dataclasses import replace

import pytest

from memtrace_otel.attribution import attribute, attribute_trace, find_failures, verdict_json
from memtrace_otel.graph import EvolutionGraph, build_graph
from memtrace_otel.model import OperationSpan, Variable, Verdict
from memtrace_otel.semconv import FailureType

from .planted import FAULTS_OF, Fault, Recording, System, record
from .story import STORY


def faults(*, of: set[Fault] | None = None) -> list[object]:
    return [
        pytest.param(system, fault, index, id=f"{system}-{fault}-{told.key}")
        for system in System
        for fault in Fault
        for index, told in enumerate(STORY)
        if fault in FAULTS_OF[system] and fault is not Fault.NONE and (of is None or fault in of)
        if told.outdated or fault not in (Fault.NOT_RENEWED, Fault.STORED_BESIDE)
    ]


def recorded(system: System, fault: Fault, index: int, **options: bool) -> Recording:
    return record(system, fault, STORY[index], STORY[(index + 3) % len(STORY)], **options)


def assert_reason_holds(verdict: Verdict) -> None:
    """No reason contradicts itself, or names an identifier that a person cannot read; every verdict has a next step."""
    taken = verdict.reason.partition("took from it only")[2]
    assert not any(item in taken for item in verdict.failure.expected.split(", "))
    assert "Only candidate 1" not in verdict.reason
    assert not re.search(r"\b(message|memory|query|fact):\w", verdict.reason)
    assert verdict.advice.endswith(".")


@pytest.mark.parametrize("evidence", [False, True], ids=["gold_answer", "gold_evidence"])
@pytest.mark.parametrize(("system", "fault", "index"), faults())
def test_planted_fault_is_found(system: System, fault: Fault, index: int, evidence: bool) -> None:
    planted = recorded(system, fault, index, evidence=evidence)
    (verdict,) = attribute_trace(build_graph(planted.spans))
    assert verdict.failure_type == planted.failure_type
    assert f"{verdict.trace_id}-{verdict.span_id}" == planted.origin
    # other words may tell the expected answer, but hardly a date
    guessed = fault is Fault.WRONG_GOLD and not evidence and not STORY[index].question.startswith("When")
    tied = fault is Fault.STORED_BESIDE  # a search that misses the new value explains as much
    assert verdict.complete == (not guessed and not tied)
    assert (verdict.confidence > 0.5) == (not guessed)
    assert_reason_holds(verdict)


@pytest.mark.parametrize("system", System)
@pytest.mark.parametrize("index", range(len(STORY)))
def test_a_right_answer_is_no_failure(system: System, index: int) -> None:
    assert find_failures(build_graph(recorded(system, Fault.NONE, index).spans)) == []


TOLD_BY_IDENTITY = {
    Fault.DROPPED, Fault.MERGED_AWAY, Fault.NOT_RENEWED, Fault.DELETED, Fault.RANKED_OUT, Fault.WRONG_SCOPE,
    Fault.IGNORED,
}  # fmt: skip


@pytest.mark.parametrize(("system", "fault", "index"), faults(of=TOLD_BY_IDENTITY))
def test_identity_tells_without_contents(system: System, fault: Fault, index: int) -> None:
    planted = recorded(system, fault, index, evidence=True, captured=False)
    (verdict,) = attribute_trace(build_graph(planted.spans))
    assert verdict.failure_type == planted.failure_type
    assert f"{verdict.trace_id}-{verdict.span_id}" == planted.origin
    assert not verdict.complete


def test_an_overwriting_is_only_likely_without_contents() -> None:
    planted = recorded(System.DECIDING, Fault.MERGED_AWAY, 0, evidence=True, captured=False)
    (verdict,) = attribute_trace(build_graph(planted.spans))
    assert verdict.confidence < 0.5
    assert [other.failure_type for other in verdict.alternatives] == [FailureType.RESPONSE]


def test_what_an_update_wrote_is_not_taken_to_be_empty_when_it_is_unknown() -> None:
    planted = recorded(System.DECIDING, Fault.MERGED_AWAY, 0)
    merged = STORY[0].merged
    spans = [
        replace(span, outputs=tuple(replace(v, content="") if v.content == merged else v for v in span.outputs))
        for span in planted.spans
    ]
    (whole,), (verdict,) = (attribute_trace(build_graph(given)) for given in (planted.spans, spans))
    assert verdict.failure_type == whole.failure_type == FailureType.UPDATE
    assert verdict.confidence < whole.confidence
    assert "the trace does not show" in verdict.reason


@pytest.mark.parametrize("system", System)
def test_without_contents_and_evidence_nothing_is_claimed(system: System) -> None:
    (verdict,) = attribute_trace(build_graph(recorded(system, Fault.IGNORED, 0, captured=False).spans))
    assert verdict.failure_type == FailureType.UNKNOWN
    assert (verdict.complete, verdict.confidence, verdict.span_id) == (False, 0.0, "")


@pytest.mark.parametrize(("system", "fault", "index"), faults()[::7])
def test_order_of_arrival_changes_nothing(system: System, fault: Fault, index: int) -> None:
    spans = recorded(system, fault, index).spans
    first = [verdict_json(verdict) for verdict in attribute_trace(build_graph(spans))]
    random.Random(index).shuffle(spans)
    assert [verdict_json(verdict) for verdict in attribute_trace(build_graph(spans))] == first


def without(graph_of: list[OperationSpan], lost: int) -> EvolutionGraph:
    return build_graph([span for position, span in enumerate(graph_of) if position != lost])


@pytest.mark.parametrize("fault", sorted(FAULTS_OF[System.DECIDING] - {Fault.NONE}))
def test_any_lost_span_gives_a_verdict_with_known_operations(fault: Fault) -> None:
    spans = recorded(System.DECIDING, fault, 1, evidence=True).spans
    for lost in range(len(spans)):
        graph = without(spans, lost)
        for verdict in attribute_trace(graph):
            assert not verdict.span_id or graph.operation(f"{verdict.trace_id}-{verdict.span_id}") is not None
            assert 0 <= verdict.confidence <= 1
            assert not verdict.complete or lost == 0, "a gap in the sequence numbers tells of a lost span"


@pytest.mark.parametrize("fault", [Fault.DROPPED, Fault.DELETED, Fault.RANKED_OUT, Fault.IGNORED])
def test_the_evidence_leads_from_the_message_to_the_loss(fault: Fault) -> None:
    planted = recorded(System.DECIDING, fault, 0)
    graph = build_graph(planted.spans)
    (verdict,) = attribute_trace(graph)
    assert verdict.evidence[0].role == "message"
    assert verdict.evidence[0].ref == planted.source
    assert verdict.evidence[-1].origin == planted.origin
    assert all(graph.operation(step.origin) is not None for step in verdict.evidence)


def test_odd_data_gives_unknown_and_never_an_exception() -> None:
    spans = recorded(System.DECIDING, Fault.DROPPED, 0).spans
    broken = [replace(span, start=0, end=0, flow=((7, 9),), scope="") for span in spans]
    for failure in find_failures(build_graph(broken)):
        assert attribute(build_graph([]), failure).failure_type == FailureType.UNKNOWN
        attribute(build_graph(broken), failure)


def test_a_search_cannot_return_what_was_written_after_it() -> None:
    planted = recorded(System.ADDITIVE, Fault.RANKED_OUT, 0)
    search = next(span for span in planted.spans if span.origin == planted.origin)
    early = replace(search, start=planted.spans[0].start, end=planted.spans[0].end)
    (verdict,) = attribute_trace(build_graph([early if span is search else span for span in planted.spans]))
    assert verdict.failure_type == FailureType.UPDATE
    assert "searched before" in verdict.reason
    assert verdict.confidence < 0.5, "it was told after the search, too"


def test_what_a_write_looks_up_for_itself_is_no_search_for_the_answer() -> None:
    planted = recorded(System.ADDITIVE, Fault.RANKED_OUT, 0)
    search = next(span for span in planted.spans if span.origin == planted.origin)
    answer = next(span for span in planted.spans if span.kind == "respond")
    reworded = replace(answer, inputs=(Variable("query:reworded", "query", content="Which name has the dog?"),))
    ingest = replace(search, span_id="a" * 16, kind="ingest", name="upsert_memory", seq=None, inputs=(), outputs=(),
                     start=search.start + 1)  # fmt: skip
    lookup = replace(ingest, span_id="b" * 16, kind="retrieve", name="neighbours", parent_id=ingest.span_id,
                     start=search.start + 2)  # fmt: skip
    kept = [reworded if span is answer else span for span in planted.spans]
    (verdict,) = attribute_trace(build_graph([*kept, ingest, lookup]))
    assert (verdict.failure_type, verdict.operation) == (FailureType.RETRIEVAL, search.name)
