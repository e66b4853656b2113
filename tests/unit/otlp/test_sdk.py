"""Spans of the SDK are encoded by the SDK's encoder; a lone surrogate never loses a span."""

from __future__ import annotations

import pytest
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags

from memtrace_otel.otlp import decode_request
from memtrace_otel.otlp.sdk import encode_sdk_spans

LINKED = SpanContext(3, 4, is_remote=True, trace_flags=TraceFlags(1))


def finished(name: str, text: str) -> ReadableSpan:
    """Return a span that holds `text` wherever a program can put text, with dropped attributes, events and links."""
    memory = InMemorySpanExporter()
    provider = TracerProvider(
        resource=Resource({"service.name": text}, "https://schema"), span_limits=SpanLimits(8, 2, 2)
    )
    provider.add_span_processor(SimpleSpanProcessor(memory))
    attributes = {"text": text, "list": [text, "b"], "number": 1, **{f"n{n}": n for n in range(8)}}
    attributes = dict(reversed(attributes.items()))  # the SDK drops the oldest attributes
    span = provider.get_tracer("scope", "1").start_span(
        name, kind=SpanKind.CLIENT, attributes=attributes, links=[Link(LINKED, {"text": text})] * 3
    )
    for _ in range(3):
        span.add_event(text, {"exception.message": text}, 5)
    span.set_status(Status(StatusCode.ERROR, text))
    span.end()
    return memory.get_finished_spans()[0]


@pytest.mark.parametrize("text", ["a", "käse \U0001f9c0", "\x00", ""])
def test_valid_text_gives_the_bytes_of_the_sdk(text: str) -> None:
    spans = [finished(text, text), finished("other", text)]
    assert encode_sdk_spans(spans) == encode_spans(spans).SerializeToString()
    assert encode_sdk_spans([]) == b""


def test_a_lone_surrogate_becomes_a_question_mark_everywhere() -> None:
    broken, sound = finished("\ud800", "a\udfffb"), finished("?", "a?b")
    expected, other = decode_request(encode_sdk_spans([sound, broken]))
    assert (other.name, other.status_message, other.resource["service.name"]) == ("?", "a?b", "a?b")
    assert other.attributes == expected.attributes
    assert other.incomplete == expected.incomplete == ("dropped",)
    assert [(event.name, event.attributes) for event in other.events] == [("a?b", {"exception.message": "a?b"})] * 2
    assert other.links == expected.links
    message = encode_spans([sound]).resource_spans[0].scope_spans[0].spans[0]
    dropped = (message.dropped_attributes_count, message.dropped_events_count, message.dropped_links_count)
    (again,) = type(encode_spans([])).FromString(encode_sdk_spans([broken])).resource_spans[0].scope_spans[0].spans
    assert (again.dropped_attributes_count, again.dropped_events_count, again.dropped_links_count) == dropped
    assert 0 not in dropped
