"""What of a trace request can be taken: its spans are checked one by one, their contents are not read."""

from __future__ import annotations

from dataclasses import dataclass

from google.protobuf.message import DecodeError as ProtobufError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from memtrace_otel.otlp.decode import check_ids
from memtrace_otel.otlp.mapped import leading_ids, span_bodies
from memtrace_otel.otlp.receiver.intake import RequestError
from memtrace_otel.otlp.receiver.limits import Limits
from memtrace_otel.otlp.receiver.pieces import Cutter, Piece, check_count
from memtrace_otel.otlp.receiver.wire import WireError

WHOLE_BYTES = 1 << 20
"""Largest request that is built as one message, whatever that takes in memory."""
_NO_TRACE, _NO_SPAN = bytes(16), bytes(8)
_ENTRY_BYTES = 2
"""What an attribute, event or link takes at least."""
_UNREADABLE = "not an OTLP trace request in protobuf, cut off, or nested too deeply, past 100 levels"
_BROKEN = "a span that is no valid protobuf or JSON, or nested too deeply, past 100 levels"


@dataclass(frozen=True, slots=True)
class Checked:
    """A request without what was refused of it: `spans` remain, `rejected` are gone, the first because of `reason`."""

    body: bytes
    spans: int
    rejected: int = 0
    reason: str = ""


def check_traces(body: bytes, limits: Limits) -> Checked:
    """Check an ExportTraceServiceRequest. Raises RequestError when nothing of it can be read.

    protobuf itself refuses messages nested deeper than 100 levels, and text that is not UTF-8.
    """
    if len(body) <= min(WHOLE_BYTES, limits.span_bytes) and (spans := _good_spans(body, limits)) is not None:
        return Checked(body, check_count(spans, limits))
    try:
        return _check_pieces(body, limits)
    except (WireError, ProtobufError):
        raise RequestError(_UNREADABLE) from None


def _good_spans(body: bytes, limits: Limits) -> int | None:
    """Return how many spans there are; None when not all can be taken."""
    try:
        ExportTraceServiceRequest.FromString(body)  # whatever is in a span
        groups = span_bodies(body)
    except ProtobufError:
        return None
    total, entries_fit = 0, _ENTRY_BYTES * limits.entries
    for spans in groups:
        total += len(spans)
        for span in spans:
            ids = leading_ids(span) if len(span) <= entries_fit else None
            # other ones that come further on are decoding's to refuse
            if (not ids or _NO_TRACE in ids or _NO_SPAN in ids) and _refusal(Span.FromString(span), limits):
                return None
    return total if total or not body else None


def _check_pieces(body: bytes, limits: Limits) -> Checked:
    cutter = Cutter(body, limits, ExportTraceServiceRequest)
    groups = cutter.cut()
    if body and not groups:
        raise RequestError("not an OTLP trace request: it holds no resourceSpans")
    pieces = [piece for group in groups for piece in group.pieces]
    found = {piece.first: _piece_refusal(cutter, piece, limits) for piece in pieces}
    refused = {first: reason for first, reason in found.items() if reason}
    if not refused:
        return Checked(body, len(pieces))
    if set(found.values()) == {_BROKEN}:
        raise RequestError(_UNREADABLE)
    return Checked(cutter.without(refused), len(pieces) - len(refused), len(refused), next(iter(refused.values())))


def _piece_refusal(cutter: Cutter, piece: Piece, limits: Limits) -> str:
    size = piece.end - piece.start
    if size > limits.span_bytes:
        return f"a span of {size} bytes, at most {limits.span_bytes} are taken"
    try:
        request = ExportTraceServiceRequest.FromString(cutter.piece(piece))
    except ProtobufError:
        return _BROKEN
    return _refusal(request.resource_spans[0].scope_spans[0].spans[0], limits)


def _refusal(span: Span, limits: Limits) -> str:
    """Return why a span is refused, '' for a good one."""
    entries = max(len(span.attributes), len(span.events), len(span.links))
    if entries > limits.entries:
        return f"a span with {entries} attributes, events or links, at most {limits.entries} are taken"
    parts = (*span.events, *span.links)
    attributes = max((len(part.attributes) for part in parts), default=0)
    if attributes > limits.entries:
        return f"an event or link with {attributes} attributes, at most {limits.entries} are taken"
    return check_ids(span)
