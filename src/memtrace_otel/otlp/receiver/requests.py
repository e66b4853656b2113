"""What of a trace request can be taken: its spans are checked one by one, their contents are not read."""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.message import DecodeError as ProtobufError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from memtrace_otel.otlp.decode import check_ids
from memtrace_otel.otlp.receiver.intake import RequestError, TooLargeError
from memtrace_otel.otlp.receiver.limits import Limits


@dataclass(frozen=True, slots=True)
class Checked:
    """A request without what was refused of it: `spans` remain, `rejected` are gone, the first because of `reason`."""

    body: bytes
    spans: int
    rejected: int = 0
    reason: str = ""


def check_traces(body: bytes, limits: Limits) -> Checked:
    """Check an ExportTraceServiceRequest. Raises RequestError when nothing of it can be taken.

    protobuf itself refuses messages nested deeper than 100 levels, and text that is not UTF-8.
    """
    try:
        request = ExportTraceServiceRequest.FromString(body)
    except ProtobufError:
        raise RequestError("not an OTLP trace request in protobuf, cut off, or nested too deeply") from None
    if body and not request.resource_spans:
        raise RequestError("not an OTLP trace request: it holds no resourceSpans")
    groups = [scope_spans for resource_spans in request.resource_spans for scope_spans in resource_spans.scope_spans]
    total = sum(len(group.spans) for group in groups)
    if total > limits.spans:
        raise TooLargeError(f"{total} spans in one request, at most {limits.spans} are taken")
    large = len(body) > limits.span_bytes
    reasons = [[_refusal(span, limits, large) for span in group.spans] for group in groups]
    refused = [reason for group in reasons for reason in group if reason]
    if not refused:
        return Checked(body, total)
    for group, found in zip(groups, reasons, strict=True):
        kept = [span for span, reason in zip(group.spans, found, strict=True) if not reason]
        del group.spans[:]
        group.spans.extend(kept)
    return Checked(request.SerializeToString(), total - len(refused), len(refused), refused[0])


def _refusal(span: Span, limits: Limits, large: bool) -> str:
    """Return why a span is refused, '' for a good one."""
    entries = max(len(span.attributes), len(span.events), len(span.links))
    if entries > limits.entries:
        return f"a span with {entries} attributes, events or links, at most {limits.entries} are taken"
    if large and (size := span.ByteSize()) > limits.span_bytes:
        return f"a span of {size} bytes, at most {limits.span_bytes} are taken"
    return check_ids(span)
