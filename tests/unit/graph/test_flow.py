"""The flow from inputs to outputs: every input, some inputs, or none."""

from __future__ import annotations

from pathlib import Path

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from memtrace_otel import operation
from memtrace_otel.graph import VersionKey, build_graph, load_slice
from memtrace_otel.graph.export import to_document, to_graphml
from memtrace_otel.model import OperationSpan, Variable
from memtrace_otel.otlp import decode_request, encode_request
from memtrace_otel.otlp.sdk import encode_sdk_spans
from memtrace_otel.semconv import Action, OpKind
from memtrace_otel.sources import SqliteStore
from tests.unit.graph.conftest import ALICE, origin_of, put, seen, span

FACT = VersionKey("fact:f", origin_of(1, 2))
Flow = tuple[tuple[int, int], ...] | None


def taken(flow: Flow) -> list[OperationSpan]:
    message, fact = put("message:m", "I live in Rome"), put("fact:f", "Rome", action=Action.DERIVE)
    around = span(1, 1, OpKind.INGEST, lasts=9, scope=ALICE, inputs=[message])
    return [around, span(1, 2, OpKind.EXTRACT, parent=1, at=1, inputs=[message], outputs=[fact], flow=flow)]


@pytest.mark.parametrize(("flow", "fed"), [(None, 1), ((), 0), (((0, 0),), 1), (((7, 0),), 1)])
def test_an_empty_flow_differs_from_a_missing_flow(flow: Flow, fed: int) -> None:
    graph = build_graph(taken(flow))
    assert len(graph.sources(FACT)) == fed


@pytest.mark.parametrize("flow", [None, (), ((0, 0),)])
def test_the_wire_keeps_an_empty_flow(flow: Flow) -> None:
    assert [s.flow for s in decode_request(encode_request(taken(flow)))] == [None, flow]


@pytest.mark.parametrize(("flow", "sources"), [(None, None), ((), []), (((0, 0),), [0])])
def test_exports_keep_an_empty_flow(flow: Flow, sources: list[int] | None) -> None:
    graph = build_graph(taken(flow))
    assert [e["sources"] for e in to_document(graph)["edges"] if e["type"] == "produced"] == [sources]
    assert ('"sources"' in to_graphml(graph)) == (sources is not None)


@pytest.mark.parametrize("many", [1, 200], ids=["one span", "parts"])
def test_capture_can_record_an_output_without_sources(many: int) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    with operation(kind="extract", system="t", tracer=provider.get_tracer("t")) as op:
        for number in range(many):
            op.read(f"message:{number}", role="message", content="x" * 200)
        op.wrote("fact:f", content="a constant", sources=[])
        op.wrote("fact:g", content="another", sources=[])
    spans = decode_request(encode_sdk_spans(exporter.get_finished_spans()))
    graph = build_graph(spans)
    assert (many > 1) == (len(spans) > 1)
    assert len(graph.inputs(op.origin)) == many
    assert [graph.sources(version) for version in graph.outputs(op.origin)] == [[], []]


@pytest.mark.parametrize("record", ["memory:7", "memory:0a0b0c0d-0000-4000-8000-000000000001"])
def test_a_slice_from_the_file_follows_the_flow(record: str, tmp_path: Path) -> None:
    """A step reads the newest version without an origin. The slice holds an older version by another path."""

    def at(trace: int, kind: OpKind, reads: list[Variable], writes: list[Variable], flow: Flow = None) -> OperationSpan:
        return span(trace, 1, kind, at=10 * trace, scope=ALICE, inputs=reads, outputs=writes, flow=flow)

    first, of_first = put(record, "Lisbon"), seen(record, origin_of(1, 1))
    other, fact = put("memory:other", "Portugal"), put("fact:cat", "a cat", action=Action.DERIVE)
    spans = [
        at(1, OpKind.CREATE, [put("message:a", "Lisbon")], [first]),
        at(2, OpKind.CONSOLIDATE, [of_first], [other]),
        at(3, OpKind.UPDATE, [put("message:b", "Rome"), of_first], [put(record, "Rome", action=Action.UPDATE)]),
        at(4, OpKind.EXTRACT, [put("message:c", "a cat"), seen(record)], [fact], flow=((0, 0),)),
        at(
            5,
            OpKind.RESPOND,
            [seen("fact:cat", origin_of(4, 1)), seen("memory:other", origin_of(2, 1))],
            [put("answer:a", "a cat")],
        ),
    ]
    with SqliteStore.open(tmp_path / "spans.db") as store:
        store.add_request(encode_request(spans))
        whole, loaded = build_graph(spans), load_slice(store, origin_of(5, 1))
    part = whole.part(whole.slice_of_answer(origin_of(5, 1)))
    assert VersionKey(record, origin_of(1, 1)) in part
    assert set(loaded.edges(keys=True)) == set(part.edges(keys=True))
