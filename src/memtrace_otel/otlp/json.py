"""OTLP/JSON to OTLP protobuf; logs also back.

OTLP/JSON is protobuf's JSON form with three differences: trace and span ids are hexadecimal, enums are numbers, unknown
fields are ignored. Reading also takes snake_case names, enum names and base64 ids, which plain protobuf tools write.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Iterable, Mapping
from typing import cast

from google.protobuf.json_format import MessageToDict, ParseDict, ParseError
from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from memtrace_otel.otlp.decode import DecodeError
from memtrace_otel.otlp.values import text

Json = dict[str, object]
_INVALID = (ParseError, TypeError, ValueError, AttributeError, OverflowError, RecursionError, SystemError)
"""What protobuf raises for a document of another form; SystemError for text with lone surrogates."""
_FIELD = re.compile(r"Failed to parse (\w+) field: ")
_FIELDS = re.compile(f"(?:{_FIELD.pattern})*")
_PATH = re.compile(r' at "?Export\w+Request\.([\w.\[\]]*[\w\]])"?\.*$')
"""Parts of a message of ParseError: the fields from the outermost inwards, and the path at the end, after the value."""


def json_to_request(document: Mapping[str, object]) -> bytes:
    """Return the protobuf form of an OTLP/JSON trace request. Raises DecodeError."""
    request = ExportTraceServiceRequest()
    _parse(document, request, "trace", "resourceSpans", "resource_spans")
    for group in request.resource_spans:
        for scope in group.scope_spans:
            for span in scope.spans:
                _set_ids((span, *span.links))
    return request.SerializeToString()


def json_to_logs(document: Mapping[str, object]) -> bytes:
    """Return the protobuf form of an OTLP/JSON logs request. Raises DecodeError."""
    request = ExportLogsServiceRequest()
    _parse(document, request, "logs", "resourceLogs", "resource_logs")
    for group in request.resource_logs:
        for scope in group.scope_logs:
            _set_ids(scope.log_records)
    return request.SerializeToString()


def logs_to_json(request: ExportLogsServiceRequest) -> Json:
    """Return a logs request as OTLP/JSON."""
    document = MessageToDict(request, use_integers_for_enums=True)
    for group in document.get("resourceLogs", ()):
        for scope in group["scopeLogs"]:
            for record in scope["logRecords"]:
                ids = {name: base64.b64decode(record[name]).hex() for name in ("traceId", "spanId") if name in record}
                record.update(ids)
    return document


def _parse(document: Mapping[str, object], request: Message, name: str, *fields: str) -> None:
    if not any(field in document for field in fields):  # unknown fields are ignored: the request would be empty
        found = text(", ".join(sorted(document)[:5])[:200]) or "nothing"
        raise DecodeError(f"not an OTLP {name} request: no {fields[0]} (found: {found})")
    try:
        try:
            ParseDict(cast("Json", document), request, ignore_unknown_fields=True)
        except _INVALID:
            request.Clear()
            ParseDict(cast("Json", _repaired(document)), request, ignore_unknown_fields=True)
    except _INVALID as error:
        raise DecodeError(f"not a valid OTLP {name} request: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    """Return which field is wrong. The message of protobuf itself quotes the value, which may be a content."""
    message = str(error)
    if isinstance(error, RecursionError) or "recursion depth" in message:
        return "nested too deeply, past 100 levels"
    path = _PATH.search(message)
    fields = _FIELDS.match(message)
    names = ".".join(_FIELD.findall(fields[0])) if fields else ""
    return f"cannot read {path[1] if path else names or 'a field'}"


def _repaired(value: object) -> object:
    """Return a copy without two things that JavaScript writes and protobuf refuses.

    An integer past 64 bits, which may be any whole number there, becomes a double; a lone surrogate a question mark.
    """
    if isinstance(value, str):
        return text(value)
    if isinstance(value, list):
        return [_repaired(item) for item in cast("list[object]", value)]
    if not isinstance(value, dict):
        return value
    holder = cast("Json", value)
    number = holder.get("intValue")
    if isinstance(number, int | float) and not -(2**63) <= number < 2**63:
        return {"doubleValue": float(number)}
    return {text(name): _repaired(item) for name, item in holder.items()}


def _set_ids(items: Iterable[Span | Span.Link | LogRecord]) -> None:
    """Put in the ids that the hexadecimal digits mean: protobuf has read the digits as base64."""
    for item in items:
        item.trace_id = _hex_id(item.trace_id)
        item.span_id = _hex_id(item.span_id)
        if isinstance(item, Span):
            item.parent_span_id = _hex_id(item.parent_span_id)


def _hex_id(id: bytes) -> bytes:
    """Return the id; ids of valid length are 32 or 16 hexadecimal digits, as base64 24 or 12 bytes."""
    if len(id) in (24, 12):
        try:
            return bytes.fromhex(base64.b64encode(id).decode())
        except ValueError:
            pass
    return id
