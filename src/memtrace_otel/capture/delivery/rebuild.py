"""SDK spans from OTLP bytes, for exporters that take nothing else."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

from opentelemetry.attributes import BoundedAttributes
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, KeyValue
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope as ScopeMessage
from opentelemetry.proto.resource.v1.resource_pb2 import Resource as ResourceMessage
from opentelemetry.proto.trace.v1.trace_pb2 import Span as SpanMessage
from opentelemetry.proto.trace.v1.trace_pb2 import SpanFlags
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util import BoundedList
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

T = TypeVar("T")
_SAMPLED = TraceFlags(TraceFlags.SAMPLED)


def rebuild_spans(request: bytes) -> list[ReadableSpan]:
    """Return the spans of an ExportTraceServiceRequest: encoding them again gives the same request.

    Several requests in a row are one request. Raises DecodeError of protobuf for other bytes.
    """
    spans: list[ReadableSpan] = []
    for of_resource in ExportTraceServiceRequest.FromString(request).resource_spans:
        resource = _resource(of_resource.resource, of_resource.schema_url)
        for of_scope in of_resource.scope_spans:
            scope = _scope(of_scope.scope, of_scope.schema_url)
            spans += [_span(span, resource, scope) for span in of_scope.spans]
    return spans


def _resource(message: ResourceMessage, schema_url: str) -> Resource:
    return Resource({pair.key: _value(pair.value) for pair in message.attributes}, schema_url)


def _scope(message: ScopeMessage, schema_url: str) -> InstrumentationScope:
    return InstrumentationScope(message.name, message.version, schema_url, _attributes(message.attributes, 0))


def _span(span: SpanMessage, resource: Resource, scope: InstrumentationScope) -> ReadableSpan:
    state = TraceState.from_header([span.trace_state]) if span.trace_state else TraceState()
    own = _context(span.trace_id, span.span_id, 0, state)
    return ReadableSpan(
        name=span.name,
        context=own,
        parent=_context(span.trace_id, span.parent_span_id, span.flags) if span.parent_span_id else None,
        resource=resource,
        attributes=_attributes(span.attributes, span.dropped_attributes_count),
        events=_bounded(
            [
                Event(e.name, _attributes(e.attributes, e.dropped_attributes_count), e.time_unix_nano)
                for e in span.events
            ],
            span.dropped_events_count,
        ),
        links=_bounded(
            [
                Link(
                    _context(link.trace_id, link.span_id, link.flags),
                    _attributes(link.attributes, link.dropped_attributes_count),
                )
                for link in span.links
            ],
            span.dropped_links_count,
        ),
        kind=SpanKind(span.kind - 1),
        status=Status(StatusCode(span.status.code), span.status.message or None),
        start_time=span.start_time_unix_nano,
        end_time=span.end_time_unix_nano,
        instrumentation_scope=scope,
    )


def _context(trace_id: bytes, span_id: bytes, flags: int, state: TraceState | None = None) -> SpanContext:
    is_remote = bool(flags & SpanFlags.SPAN_FLAGS_CONTEXT_IS_REMOTE_MASK)
    return SpanContext(int.from_bytes(trace_id), int.from_bytes(span_id), is_remote, _SAMPLED, state)


def _bounded(items: Sequence[T], dropped: int) -> Sequence[T]:
    bounded: BoundedList[T] = BoundedList(None)
    bounded.extend(items)
    bounded.dropped = dropped
    return bounded


def _attributes(pairs: Iterable[KeyValue], dropped: int) -> BoundedAttributes:
    attributes = BoundedAttributes(attributes={pair.key: _value(pair.value) for pair in pairs}, immutable=False)
    attributes.dropped = dropped
    return attributes


def _value(value: AnyValue) -> Any:
    match value.WhichOneof("value"):
        case None:
            return None
        case "array_value":
            return tuple(_value(item) for item in value.array_value.values)
        case "kvlist_value":
            return {pair.key: _value(pair.value) for pair in value.kvlist_value.values}
        case name:
            return getattr(value, name)
