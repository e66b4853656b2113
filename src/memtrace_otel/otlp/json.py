"""OTLP/JSON to OTLP protobuf.

OTLP/JSON is protobuf's JSON form with three differences: trace and span ids are hexadecimal, enums are numbers, unknown
fields are ignored. Reading also takes snake_case names, enum names and base64 ids, which plain protobuf tools write.
"""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Mapping
from typing import cast

from google.protobuf.json_format import ParseDict, ParseError
from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from memtrace_otel.otlp.decode import DecodeError
from memtrace_otel.otlp.values import text

Json = dict[str, object]
_INVALID = (ParseError, TypeError, ValueError, AttributeError, OverflowError, RecursionError, SystemError)
"""What protobuf raises for a document that is not of the message's form; the last for text that is no Unicode."""
_FIELD = re.compile(r"Failed to parse (\w+) field: ")
_FIELDS = re.compile(f"(?:{_FIELD.pattern})*")
_PATH = re.compile(r' at "?Export\w+Request\.([\w.\[\]]*[\w\]])"?\.*$')
"""In what protobuf says: the fields, the outermost first, and at its end, behind the value, the place."""
_ID_BYTES = {"traceId": 16, "trace_id": 16, "spanId": 8, "span_id": 8, "parentSpanId": 8, "parent_span_id": 8}


def json_to_request(document: Mapping[str, object]) -> bytes:
    """Return the protobuf form of an OTLP/JSON trace request. Raises DecodeError with what is wrong in it."""
    _check_holds(document, "trace", "resourceSpans", "resource_spans")
    return _parsed(document, ExportTraceServiceRequest(), "trace")


def json_to_logs(document: Mapping[str, object]) -> bytes:
    """Return the protobuf form of an OTLP/JSON logs request. Raises DecodeError with what is wrong in it."""
    _check_holds(document, "logs", "resourceLogs", "resource_logs")
    return _parsed(document, ExportLogsServiceRequest(), "logs")


def _check_holds(document: Mapping[str, object], name: str, *fields: str) -> None:
    """Unknown fields are ignored: a document of nothing else would be a request of nothing."""
    if not any(field in document for field in fields):
        found = text(", ".join(sorted(document)[:5])[:200]) or "nothing"
        raise DecodeError(f"not an OTLP {name} request: no {fields[0]} (found: {found})")


def _parsed(document: Mapping[str, object], request: Message, name: str) -> bytes:
    try:
        document = _with_binary_ids(document)
        try:
            return _serialized(document, request)
        except _INVALID:
            repaired = _repaired(document)
            if repaired == document:
                raise
            request.Clear()
            return _serialized(repaired, request)
    except DecodeError:
        raise
    except _INVALID as error:
        raise DecodeError(f"not a valid OTLP {name} request: {_reason(error)}") from None


def _reason(error: Exception) -> str:
    """Return which field is wrong. What protobuf says of it quotes the value, which may be a content, and names every
    level before it says that there are too many."""
    told = str(error)
    if isinstance(error, RecursionError) or "recursion depth" in told:
        return "nested too deeply, past 100 levels"
    path = _PATH.search(told)
    fields = _FIELDS.match(told)
    names = ".".join(_FIELD.findall(fields[0])) if fields else ""
    return f"cannot read {path[1] if path else names or 'a field'}"


def _serialized(document: object, request: Message) -> bytes:
    return ParseDict(cast("Json", document), request, ignore_unknown_fields=True).SerializeToString()


def _repaired(value: object) -> object:
    """Return a copy with what JavaScript writes and protobuf does not hold in another form.

    An integer past 64 bits, which any whole number may be, is a double; half a surrogate pair is a question mark.
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


def _with_binary_ids(document: Mapping[str, object]) -> Json:
    """Return a copy of the document with ids in the form that protobuf's JSON has."""

    def ids(holder: Json) -> Json:
        return {
            name: _to_base64(name, value) if name in _ID_BYTES and isinstance(value, str) else value
            for name, value in holder.items()
        }

    def spans(span: Json) -> Json:
        return _map_objects(ids(span), ("links",), ids)

    def scope_spans(group: Json) -> Json:
        return _map_objects(group, ("spans",), spans)

    def resource_spans(group: Json) -> Json:
        if "instrumentationLibrarySpans" in group:
            raise DecodeError("OTLP before 0.19 (instrumentationLibrarySpans) is not supported")
        return _map_objects(group, ("scopeSpans", "scope_spans"), scope_spans)

    def scope_logs(group: Json) -> Json:
        return _map_objects(group, ("logRecords", "log_records"), ids)

    def resource_logs(group: Json) -> Json:
        return _map_objects(group, ("scopeLogs", "scope_logs"), scope_logs)

    document = _map_objects(document, ("resourceSpans", "resource_spans"), resource_spans)
    return _map_objects(document, ("resourceLogs", "resource_logs"), resource_logs)


def _map_objects(holder: Mapping[str, object], names: tuple[str, ...], convert: Callable[[Json], Json]) -> Json:
    """Return a copy of `holder` with `convert` applied to each object in the arrays called `names`."""
    copy = dict(holder)
    for name in names:
        items = copy.get(name)
        if items is None:
            continue
        if not isinstance(items, list) or not all(isinstance(item, dict) for item in cast("list[object]", items)):
            raise DecodeError(f"{name} is not an array of objects")
        copy[name] = [convert(item) for item in cast("list[Json]", items)]
    return copy


def _to_base64(name: str, id: str) -> str:
    """Hexadecimal digits of any number: whether an id is valid is told of the span, as it is for protobuf."""
    try:
        return base64.b64encode(binascii.unhexlify(id)).decode()
    except ValueError:
        pass
    size = _ID_BYTES[name]
    if len(id) == len(base64.b64encode(bytes(size))):
        return id
    raise DecodeError(f"{name} {id[:40]!r} is not {2 * size} hex digits")
