"""Lost spans, told by sequence numbers."""

from __future__ import annotations

from memtrace_otel import semconv
from memtrace_otel.graph import build_graph
from memtrace_otel.graph.build import lost_spans
from memtrace_otel.model import OperationSpan
from tests.unit.graph.conftest import span


def numbered(*numbers: int, process: int = 1, trace: int = 1) -> list[OperationSpan]:
    resource = {"service.name": "s", "process.pid": process}
    return [span(trace, n, "ingest", seq=n, resource=resource) for n in numbers]


def test_gaps_inside_each_process_are_counted() -> None:
    assert lost_spans([*numbered(1, 2, 5), *numbered(3, 4, process=2, trace=2), *numbered(9, process=3, trace=3)]) == 2
    assert build_graph(numbered(1, 2, 5)).incomplete == {"lost_spans": 2}


def test_gaps_in_a_part_of_the_spans_are_not_counted() -> None:
    assert build_graph(numbered(1, 2, 5), whole=False).incomplete == {}


def test_a_repeated_span_is_counted_once() -> None:
    assert lost_spans([*numbered(1, 3), *numbered(1, 3)]) == 1


def test_gaps_of_two_processes_with_one_resource_are_not_counted() -> None:
    assert lost_spans([*numbered(1, 9), *numbered(1, 5, trace=2)]) == 0


def test_the_upper_bits_distinguish_processes_with_one_resource() -> None:
    child = 7 << semconv.SEQ_BITS
    assert lost_spans([*numbered(1, 2, 4), *numbered(child + 1, child + 4, trace=2)]) == 1 + 2


def test_other_instrumentations_have_no_numbers() -> None:
    assert lost_spans([span(1, 1, "respond")]) == 0
