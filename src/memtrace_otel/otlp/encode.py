"""Operation spans to OTLP protobuf."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span, Status

from memtrace_otel.model import OperationSpan
from memtrace_otel.otlp.fields import write_fields
from memtrace_otel.otlp.values import encode_pairs, text

_STATUS: dict[str, Status.StatusCode.ValueType] = {
    "ok": Status.STATUS_CODE_OK,
    "error": Status.STATUS_CODE_ERROR,
}


def encode_request(spans: Sequence[OperationSpan]) -> bytes:
    """Return an ExportTraceServiceRequest; `decode_request` gives the same spans in the same order.

    The span kind is INTERNAL, because operation spans have none. Raises ValueError for an id that is not hexadecimal.
    """
    request = ExportTraceServiceRequest()
    for (resource, scope), group in groupby(spans, key=lambda span: (span.resource, span.instrumentation_scope)):
        request.resource_spans.append(
            ResourceSpans(
                resource=Resource(attributes=encode_pairs(resource)),
                scope_spans=[ScopeSpans(scope=InstrumentationScope(name=scope), spans=map(encode_span, group))],
            )
        )
    return request.SerializeToString()


def encode_span(span: OperationSpan) -> Span:
    """Return one span, without resource and instrumentation scope."""
    return Span(
        trace_id=bytes.fromhex(span.trace_id),
        span_id=bytes.fromhex(span.span_id),
        parent_span_id=bytes.fromhex(span.parent_id),
        name=text(span.name),
        kind=Span.SPAN_KIND_INTERNAL,
        start_time_unix_nano=span.start,
        end_time_unix_nano=span.end,
        attributes=encode_pairs(write_fields(span)),
        events=[
            Span.Event(name=text(event.name), time_unix_nano=event.time, attributes=encode_pairs(event.attributes))
            for event in span.events
        ],
        links=[
            Span.Link(
                trace_id=bytes.fromhex(link.trace_id),
                span_id=bytes.fromhex(link.span_id),
                attributes=encode_pairs(link.attributes),
            )
            for link in span.links
        ],
        status=Status(code=_STATUS.get(span.status, Status.STATUS_CODE_UNSET), message=text(span.status_message)),
    )
