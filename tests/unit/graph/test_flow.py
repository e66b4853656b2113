"""What fed what: every input, some, or none."""

from __future__ import annotations

import pytest
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from memtrace_otel import operation
from memtrace_otel.graph import VersionKey, build_graph
from memtrace_otel.graph.export import to_document, to_graphml
from memtrace_otel.graph.smartcomment import to_smartcomment, to_spans
from memtrace_otel.model import OperationSpan
from memtrace_otel.otlp import decode_request, encode_request
from memtrace_otel.otlp.sdk import encode_sdk_spans
from memtrace_otel.semconv import Action, OpKind
from tests.unit.graph.conftest import ALICE, origin_of, put, span

FACT = VersionKey("fact:f", origin_of(1, 2))
Flow = tuple[tuple[int, int], ...] | None


def taken(flow: Flow) -> list[OperationSpan]:
    message, fact = put("message:m", "I live in Rome"), put("fact:f", "Rome", action=Action.DERIVE)
    around = span(1, 1, OpKind.INGEST, lasts=9, scope=ALICE, inputs=[message])
    return [around, span(1, 2, OpKind.EXTRACT, parent=1, at=1, inputs=[message], outputs=[fact], flow=flow)]


@pytest.mark.parametrize(("flow", "fed"), [(None, 1), ((), 0), (((0, 0),), 1), (((7, 0),), 1)])
def test_an_empty_flow_is_no_missing_one(flow: Flow, fed: int) -> None:
    graph = build_graph(taken(flow))
    assert len(graph.sources(FACT)) == fed


@pytest.mark.parametrize("flow", [None, (), ((0, 0),)])
def test_the_wire_keeps_it(flow: Flow) -> None:
    assert [s.flow for s in decode_request(encode_request(taken(flow)))] == [None, flow]


@pytest.mark.parametrize(("flow", "sources"), [(None, None), ((), []), (((0, 0),), [0])])
def test_exports_keep_it(flow: Flow, sources: list[int] | None) -> None:
    graph = build_graph(taken(flow))
    assert [e["sources"] for e in to_document(graph)["edges"] if e["type"] == "produced"] == [sources]
    assert ('"sources"' in to_graphml(graph)) == (sources is not None)


def test_a_smartcomment_file_keeps_it() -> None:
    spans = to_spans(to_smartcomment(build_graph(taken(()))))
    (extract,) = [s for s in spans if s.outputs]
    assert [v.ref for v in extract.inputs] == ["message:m"]
    assert extract.flow == ()


def test_an_output_without_a_source_beside_one_with_a_source_has_its_operation_in_smartcomment() -> None:
    first = taken(((0, 0),))
    two = [first[0], span(1, 2, OpKind.EXTRACT, parent=1, at=1, inputs=first[1].inputs,
                          outputs=[*first[1].outputs, put("fact:g", "x")], flow=((0, 0),))]  # fmt: skip
    edges = to_smartcomment(build_graph(two))["data"]["edges"]
    assert len({edge["target_full_node_id"] for edge in edges if "fact" in edge["target_full_node_id"]}) == 2


@pytest.mark.parametrize("many", [1, 200], ids=["one span", "parts"])
def test_a_version_that_comes_from_nothing_can_be_said(many: int) -> None:
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
