"""Finished spans of the OpenTelemetry SDK to OTLP protobuf, by the SDK's own encoder.

The encoder fails on a lone surrogate, which UTF-8 cannot hold: the span's name would lose the whole batch, an attribute
would be dropped. Here every lone surrogate becomes a question mark first.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util import BoundedList
from opentelemetry.trace import Link, Status

from memtrace_otel.otlp.values import text


def encode_sdk_spans(spans: Sequence[ReadableSpan]) -> bytes:
    """Return an ExportTraceServiceRequest. Raises what the SDK's encoder raises for a span that cannot be encoded."""
    return encode_spans(
        [span if _is_unicode(_parts(span)) else _as_unicode(span) for span in spans]
    ).SerializeToString()


def _parts(span: ReadableSpan) -> list[object]:
    """Return everything in the span that may hold text of the program."""
    events = [(event.name, event.attributes) for event in span.events]
    links = [link.attributes for link in span.links]
    return [span.name, span.attributes, span.status.description, events, links, span.resource.attributes]


def _is_unicode(value: object) -> bool:
    """Tell whether no text in the value has a lone surrogate."""
    if isinstance(value, str):
        return value.isascii() or value == text(value)
    if isinstance(value, list | tuple):
        return all(map(_is_unicode, cast("Sequence[object]", value)))
    if isinstance(value, Mapping):
        return all(_is_unicode(key) and _is_unicode(item) for key, item in cast("Mapping[str, object]", value).items())
    return True


def _as_unicode(span: ReadableSpan) -> ReadableSpan:
    """Return a copy of the span with a question mark for each lone surrogate."""
    events = BoundedList[Event](None)
    events.extend(
        [
            Event(text(event.name), _attributes(event.attributes, event.dropped_attributes), event.timestamp)
            for event in span.events
        ]
    )
    events.dropped = span.dropped_events
    links = BoundedList[Link](None)
    links.extend([Link(link.context, _attributes(link.attributes, link.dropped_attributes)) for link in span.links])
    links.dropped = span.dropped_links
    description = span.status.description
    return ReadableSpan(
        text(span.name),
        span.get_span_context(),
        span.parent,
        Resource(_replaced(span.resource.attributes), span.resource.schema_url),
        _attributes(span.attributes, span.dropped_attributes),
        events,
        links,
        span.kind,
        status=Status(span.status.status_code, None if description is None else text(description)),
        start_time=span.start_time,
        end_time=span.end_time,
        instrumentation_scope=span.instrumentation_scope,
    )


def _attributes(attributes: Mapping[str, Any] | None, dropped: int) -> BoundedAttributes:
    bounded = BoundedAttributes(attributes=_replaced(attributes or {}), immutable=False)
    bounded.dropped = dropped
    return bounded


def _replaced(value: Any) -> Any:
    if isinstance(value, str):
        return text(value)
    if isinstance(value, list | tuple):
        return [_replaced(item) for item in cast("Sequence[object]", value)]
    if isinstance(value, Mapping):
        return {text(key): _replaced(item) for key, item in cast("Mapping[str, object]", value).items()}
    return value
