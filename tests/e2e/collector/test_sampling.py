"""Tail sampling: memory spans and failing traces are kept whole, others by their share; a late span finds its way."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memtrace_otel.model import OperationSpan
from tests.e2e.backends.jaeger import Jaeger
from tests.e2e.backends.service import running, wait_for
from tests.e2e.collector.processes import Collector, Serve
from tests.e2e.collector.spans import evaluation, memory, new_trace, span, tell

_TRACES = 60


@pytest.fixture(scope="module")
def gateway(jaeger: Jaeger, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Collector]:
    folder = tmp_path_factory.mktemp("sampling")
    names = {"BACKEND_OTLP": jaeger.otlp_grpc.removeprefix("http://"), "MEMTRACE_SERVE": Serve(folder).otlp}
    collector = Collector(folder, "gateway", "redaction", "sampling", SAMPLING_WAIT="2s", SAMPLING_PERCENT=50, **names)
    with running(collector):
        yield collector


def kinds_of_trace() -> dict[str, list[OperationSpan]]:
    """Traces that have to be kept, each with a span that has nothing to do with the reason."""

    def trace(*because: OperationSpan) -> list[OperationSpan]:
        return [*because, span(because[0].trace_id, "SELECT")]

    ids = [new_trace() for _ in range(9)]
    verdict = span(ids[4], "memtrace.attribution update", instrumentation_scope="memtrace_otel.attribution")
    return {
        "a memory write": trace(memory(ids[0], "Ana lives in Lisbon.")),
        "an error": trace(span(ids[1], "POST", status="error")),
        "a failed evaluation": trace(span(ids[2], "answer", events=(evaluation("fail"),))),
        "a score": trace(span(ids[5], "score", attributes={"gen_ai.evaluation.score.value": 0.2})),
        "a judge": trace(span(ids[3], "memtrace.judge", "judge", scope="")),
        "a verdict": trace(verdict),
        "a call of a model": trace(span(ids[6], "chat m", attributes={"gen_ai.operation.name": "chat"})),
        "a completion": trace(span(ids[8], "POST", attributes={"gen_ai.operation.name": "text_completion"})),
        "a retrieval": trace(span(ids[7], "retrieval d", attributes={"gen_ai.operation.name": "retrieval"})),
    }


def test_memories_and_failures_are_kept_whole_and_others_by_their_share(gateway: Collector, jaeger: Jaeger) -> None:
    kept = {why: [kinds_of_trace()[why] for _ in range(8)] for why in kinds_of_trace()}
    plain = [[span(trace_id, "GET"), span(trace_id, "SELECT")] for trace_id in (new_trace() for _ in range(_TRACES))]
    for spans in [*(spans for traces in kept.values() for spans in traces), *plain]:
        tell(gateway.otlp, spans)

    def shown(spans: list[OperationSpan]) -> list[str]:
        return sorted(one.span_id for one in jaeger.spans(spans[0].trace_id))

    for why, traces in kept.items():
        for spans in traces:
            expected = sorted(one.span_id for one in spans)
            wait_for(lambda spans=spans, expected=expected: shown(spans) == expected, f"a trace with {why}, whole")
    wait_for(lambda: {len(shown(spans)) for spans in plain} == {0, 2}, "a part of the other traces, whole")


def test_what_comes_after_the_decision_to_drop_is_kept(gateway: Collector, jaeger: Jaeger) -> None:
    plain = [[span(new_trace(), "GET")] for _ in range(_TRACES)]
    for spans in plain:
        tell(gateway.otlp, spans)
    last = span(new_trace(), "GET", status="error")
    tell(gateway.otlp, [last, span(last.trace_id, "SELECT")])
    wait_for(lambda: len(jaeger.spans(last.trace_id)) == 2, "the trace that was decided last")
    dropped = [spans[0].trace_id for spans in plain if not jaeger.spans(spans[0].trace_id)]
    assert dropped
    late = memory(dropped[0], "Ana lives in Porto.")
    tell(gateway.otlp, [late])
    wait_for(lambda: bool(jaeger.spans(dropped[0])), "the memory write")
    assert [one.span_id for one in jaeger.spans(dropped[0])] == [late.span_id]


def test_a_kill_takes_no_memory_span_and_no_failure_with_it(jaeger: Jaeger, tmp_path: Path) -> None:
    """Though no decision was made: they do not wait for one."""
    names = {"BACKEND_OTLP": jaeger.otlp_grpc.removeprefix("http://"), "MEMTRACE_SERVE": Serve(tmp_path).otlp}
    with running(Collector(tmp_path, "gateway", "redaction", "sampling", SAMPLING_WAIT="60s", **names)) as gateway:
        assert isinstance(gateway, Collector)
        told = [spans[0] for spans in kinds_of_trace().values()]
        tell(gateway.otlp, told)
        gateway.kill()
        gateway.start()
        for one in told:
            wait_for(lambda one=one: bool(jaeger.spans(one.trace_id)), f"{one.name} in Jaeger")
