"""A span that was on disk is the span it was."""

from __future__ import annotations

import pytest
from google.protobuf.message import DecodeError
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

from memtrace_otel.capture.delivery.rebuild import rebuild_spans


def rich_spans() -> list[ReadableSpan]:
    memory = InMemorySpanExporter()
    provider = TracerProvider(
        resource=Resource({"service.name": "s", "n": 1}, "https://schema/resource"),
        span_limits=SpanLimits(max_span_attributes=9, max_events=2, max_links=2),
    )
    provider.add_span_processor(SimpleSpanProcessor(memory))
    tracer = provider.get_tracer("lib", "1.2", "https://schema/scope", {"scope": ("a", "b")})
    remote = SpanContext(0xABC, 0xDEF, True, TraceFlags(1), TraceState([("vendor", "x"), ("other", "y")]))
    context = trace.set_span_in_context(trace.NonRecordingSpan(remote))
    link = Link(SpanContext(1, 2, True, TraceFlags(1)), {"refs": ["memory:1", "memory:2"]})
    with tracer.start_as_current_span(
        "remote child",
        context,
        SpanKind.CLIENT,
        {
            "text": "käse \U0001f9c0",
            "yes": True,
            "n": 2**62,
            "f": 0.25,
            "none": (),
            "many": [1, 2],
            "bytes": b"\x00\xff",
        },
        [link, link, link],
    ) as span:
        for n in range(3):
            span.add_event(f"event {n}", {"n": n, "list": ["a"]}, 1000 + n)
        span.set_status(Status(StatusCode.ERROR, "why"))
        tracer.start_span("child", kind=SpanKind.PRODUCER).end()
    for n, kind in enumerate(SpanKind):
        tracer.start_span("root", kind=kind, attributes={f"a{i}": i for i in range(n + 8)}).end()
    tracer.start_span("").end()
    return list(memory.get_finished_spans())


def test_encoding_a_rebuilt_span_gives_the_same_bytes() -> None:
    spans = rich_spans()
    assert spans[1].dropped_links == spans[1].dropped_events == 1
    for span in spans:
        request = encode_spans([span]).SerializeToString()
        (rebuilt,) = rebuild_spans(request)
        assert encode_spans([rebuilt]).SerializeToString() == request
        assert rebuilt.context is not None
        assert rebuilt.context.trace_flags.sampled
        assert rebuilt.status.status_code is span.status.status_code


def test_requests_in_a_row_are_one_request() -> None:
    spans = rich_spans()
    row = b"".join(encode_spans([span]).SerializeToString() for span in spans)
    assert [span.name for span in rebuild_spans(row)] == [span.name for span in spans]


def test_other_bytes_are_an_error_of_protobuf() -> None:
    with pytest.raises(DecodeError):
        rebuild_spans(b"\xff\xff\xff")
