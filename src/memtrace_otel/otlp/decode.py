"""OTLP protobuf to operation spans: the reading side of the wire contract."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from google.protobuf.message import DecodeError as ProtobufError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.common.v1.common_pb2 import InstrumentationScope
from opentelemetry.proto.resource.v1.resource_pb2 import Resource
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from memtrace_otel import semconv
from memtrace_otel.model import AttributeValue, Event, Link, OperationSpan
from memtrace_otel.otlp.fields import FieldReader
from memtrace_otel.otlp.values import attributes, decode_pairs

_STATUS = ("unset", "ok", "error")
_NO_TRACE, _NO_SPAN = bytes(16), bytes(8)


class DecodeError(ValueError):
    """Bytes that are not an OTLP trace request, or a span without valid ids. The message gives the reason."""


@dataclass(frozen=True, slots=True)
class SpanGroup:
    """Spans of one request with the same resource and instrumentation scope."""

    resource: Resource
    scope: InstrumentationScope
    schema_url: str
    spans: Sequence[Span]


def parse_request(body: bytes) -> list[SpanGroup]:
    """Parse an ExportTraceServiceRequest, or TracesData, which has the same form. Raises DecodeError."""
    try:
        request = ExportTraceServiceRequest.FromString(body)
    except ProtobufError as error:
        raise DecodeError(f"not an OTLP trace request in protobuf, or truncated ({error})") from None
    if body and not request.resource_spans:
        raise DecodeError("not an OTLP trace request: it holds no resourceSpans")
    return [
        SpanGroup(resource_spans.resource, scope_spans.scope, scope_spans.schema_url, scope_spans.spans)
        for resource_spans in request.resource_spans
        for scope_spans in resource_spans.scope_spans
    ]


def check_ids(span: Span) -> str:
    """Return why the ids of `span` are invalid, '' for valid ids."""
    trace_id, span_id = span.trace_id, span.span_id
    if len(trace_id) == 16 and len(span_id) == 8 and trace_id != _NO_TRACE and span_id != _NO_SPAN:
        return ""
    for name, id, size in (("trace", span.trace_id, 16), ("span", span.span_id, 8)):
        if len(id) != size:
            return f"span {span.name[:80]!r} has a {name} id of {len(id)} bytes instead of {size}"
        if not id.strip(b"\0"):
            return f"span {span.name[:80]!r} has an all-zero {name} id"
    return ""


def check_wire_version(group: SpanGroup) -> str:
    """Return why the spans cannot be read: they follow a later wire contract. '' when they can."""
    url, _, version = group.schema_url.rpartition("/")
    if url != semconv.SCHEMA_URL.rpartition("/")[0]:
        return ""
    try:
        newer = [int(part) for part in version.split(".")[:2]] > [int(part) for part in semconv.WIRE_VERSION.split(".")]
    except ValueError:
        return f"unknown wire version {version[:40]!r}"
    return f"wire version {version}; this program reads up to {semconv.WIRE_VERSION}" if newer else ""


def decode_request(body: bytes) -> list[OperationSpan]:
    """Return the spans of an OTLP request in order. Raises DecodeError, also when a single span has invalid ids."""
    spans: list[OperationSpan] = []
    for group in parse_request(body):
        resource = attributes(decode_pairs(group.resource.attributes))
        for span in group.spans:
            if reason := check_ids(span):
                raise DecodeError(reason)
            spans.append(decode_span(span, resource, group.scope.name))
    return spans


def decode_span(span: Span, resource: Mapping[str, AttributeValue], scope: str) -> OperationSpan:
    """Return the operation span of a span with valid ids."""
    reader = FieldReader(decode_pairs(span.attributes))
    kind = reader.text(semconv.OP_KIND) or _standard_kind(reader.rest.get(semconv.GEN_AI_OPERATION_NAME))
    inputs, input_indices = reader.inputs()
    outputs, output_indices = reader.outputs()
    part = reader.integer(semconv.PART) or 0
    flow = reader.flow(input_indices, output_indices, part)
    incomplete = reader.texts(semconv.INCOMPLETE)
    system, memory_scope = reader.text(semconv.SYSTEM), reader.text(semconv.SCOPE)
    seq, evidence = reader.integer(semconv.SEQ), reader.texts(semconv.EVIDENCE)
    if reader.malformed:
        incomplete.append(semconv.Incomplete.MALFORMED)
    if span.dropped_attributes_count or span.dropped_events_count:
        incomplete.append(semconv.Incomplete.DROPPED)
    return OperationSpan(
        trace_id=span.trace_id.hex(),
        span_id=span.span_id.hex(),
        parent_id=span.parent_span_id.hex() if len(span.parent_span_id) == 8 and any(span.parent_span_id) else "",
        name=span.name,
        kind=kind,
        system=system,
        scope=memory_scope,
        seq=seq,
        part=part,
        start=span.start_time_unix_nano,
        end=span.end_time_unix_nano,
        status=_STATUS[span.status.code] if span.status.code in range(len(_STATUS)) else "unset",
        status_message=span.status.message,
        inputs=tuple(inputs),
        outputs=tuple(outputs),
        flow=flow,
        evidence=tuple(evidence),
        incomplete=tuple(dict.fromkeys(map(str, incomplete))),
        attributes=attributes(reader.rest),
        resource=resource,
        instrumentation_scope=scope,
        links=tuple(
            Link(link.trace_id.hex(), link.span_id.hex(), attributes(decode_pairs(link.attributes)))
            for link in span.links
            if len(link.trace_id) == 16 and len(link.span_id) == 8
        ),
        events=tuple(
            Event(event.name, event.time_unix_nano, attributes(decode_pairs(event.attributes))) for event in span.events
        ),
    )


def _standard_kind(operation: object) -> str:
    """Return the kind for a GenAI operation name of another instrumentation, '' for an unknown name."""
    return str(semconv.KIND_OF_OPERATION.get(operation, "")) if isinstance(operation, str) else ""
