"""One OTLP request: its limits, its checks, and the errors that refuse it.

A request is parsed as a whole by the generated protobuf classes. A request that cannot be parsed is refused with a
reason. Spans past a limit, or with invalid ids, are taken out of a request and counted.
"""

from __future__ import annotations

import hmac
import json
import zlib
from collections.abc import Callable, Generator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol, TypeVar, cast

from google.protobuf.message import DecodeError as ProtobufError
from google.protobuf.message import Message
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from memtrace_otel import settings
from memtrace_otel.otlp.decode import DecodeError, check_ids
from memtrace_otel.otlp.json import Json, json_to_logs, json_to_request

GZIP, DEFLATE = 31, zlib.MAX_WBITS
_ANY_RATIO_BYTES = 4 << 20
"""Inflated size up to which any compression ratio is taken. A batch may repeat one long prompt in every span."""
_RETRY_SECONDS = 1
_M = TypeVar("_M", bound=Message)


class Signal(StrEnum):
    """OTLP signals that the receiver takes."""

    TRACES = "traces"
    LOGS = "logs"


class Cause(StrEnum):
    """Why a request is refused as a whole: the label of the counter of refusals."""

    BEHIND = "behind"
    MEMORY = "memory"
    STORE = "store"
    LATE = "late"
    TOO_LARGE = "too_large"
    UNREADABLE = "unreadable"
    UNAUTHORIZED = "unauthorized"


Count = Callable[[Cause], None]
"""Called once for each refused request, by the endpoint that answers."""


class RequestError(ValueError):
    """A request that is refused for good. The message gives the reason and never quotes a content."""

    cause = Cause.UNREADABLE


class TooLargeError(RequestError):
    """A request past a limit."""

    cause = Cause.TOO_LARGE


class ContentTypeError(RequestError):
    """A request of an unknown content type."""


class BusyError(Exception):
    """The receiver takes no request now; the sender may try again after `retry_after` seconds."""

    def __init__(self, reason: str, retry_after: int, cause: Cause) -> None:
        super().__init__(reason)
        self.retry_after = retry_after
        self.cause = cause

    @property
    def is_overload(self) -> bool:
        """Whether too many requests are the cause; otherwise the database cannot be written."""
        return self.cause is not Cause.STORE


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """The request is on disk, without `rejected` spans or log records; `reason` is that of the first one."""

    rejected: int = 0
    reason: str = ""


class Intake(Protocol):
    """Stores the requests of all connections."""

    async def accept(self, body: bytes, signal: Signal) -> Acknowledgement:
        """Return when the protobuf request is on disk. Raises RequestError or BusyError."""
        ...


@dataclass(frozen=True, slots=True)
class Checked:
    """A trace request of `spans` good spans; `rejected` others were taken out, the first one because of `reason`."""

    body: bytes
    spans: int
    rejected: int = 0
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of one request, checked before memory is allocated where possible.

    `request_bytes` (inflated), `span_bytes` of a span or log record, `spans` (with the groups of spans), `entries`
    (attributes, events and links of a span, each; attributes of an event or link), `json_objects`, and the gzip `ratio`
    of a request that inflates to more than 4 MiB.
    """

    request_bytes: int
    span_bytes: int = 1 << 20
    spans: int = 20_000
    entries: int = 2_048
    json_objects: int = 250_000
    ratio: int = 200

    @classmethod
    def from_settings(cls) -> Limits:
        """Return the limits of the settings."""
        return cls(settings.MAX_REQUEST_BYTES.read())

    def check_size(self, size: int) -> None:
        """Raise TooLargeError for a body of too many bytes."""
        if size > self.request_bytes:
            raise TooLargeError(
                f"the request is larger than {self.request_bytes} bytes ({settings.MAX_REQUEST_BYTES.env})"
            )

    def check_count(self, count: int) -> None:
        """Raise TooLargeError for too many spans, log records and groups."""
        if count > self.spans:
            raise TooLargeError(f"more than {self.spans} spans, log records or groups of them in one request")

    def refusal(self, item: Span | LogRecord) -> str:
        """Return which limit a span or log record passes, '' for none."""
        name = "span" if isinstance(item, Span) else "log record"
        entries = len(item.attributes)
        if isinstance(item, Span):
            parts = [len(part.attributes) for part in (*item.events, *item.links)]
            entries = max(entries, len(item.events), len(item.links), *parts)
        if entries > self.entries:
            return f"a {name} with {entries} attributes, events or links, at most {self.entries} are taken"
        if (size := item.ByteSize()) > self.span_bytes:
            return f"a {name} of {size} bytes, at most {self.span_bytes} are taken"
        return ""


class InFlightBytes:
    """Bounds the bytes of all bodies in memory. For one thread, the thread of the event loop."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._bytes = 0

    @contextmanager
    def request(self) -> Generator[Callable[[int], None]]:
        """Yield a function that adds bytes to the request; all are given back at the end.

        The function raises BusyError past the bound. A request that is alone is never refused.
        """
        own = 0

        def add(size: int) -> None:
            nonlocal own
            if self._bytes and size > 0 and self._bytes + size > self._most:
                raise BusyError("too many bytes of other requests are in memory", _RETRY_SECONDS, Cause.MEMORY)
            self._bytes += size
            own += size

        try:
            yield add
        finally:
            self._bytes -= own


def is_allowed(authorization: str, token: str) -> bool:
    """Tell whether the header `authorization` bears the token; an empty token allows every sender."""
    if not token:
        return True
    scheme, _, given = authorization.partition(" ")
    return scheme.lower() == "bearer" and hmac.compare_digest(given.strip().encode(), token.encode())


def gunzip(packed: bytes, limits: Limits, window: int = GZIP) -> bytes:
    """Return the inflated body; `window` is zlib's. Stops at the first limit. Raises RequestError."""
    most = min(limits.request_bytes, max(_ANY_RATIO_BYTES, len(packed) * limits.ratio))
    unpacker = zlib.decompressobj(window)
    try:
        body = unpacker.decompress(packed, most + 1)
    except zlib.error:
        raise RequestError("damaged gzip data") from None
    limits.check_size(len(body))
    if len(body) > most:
        raise TooLargeError(f"the request unpacks to more than {limits.ratio} times its size")
    if not unpacker.eof or unpacker.unused_data:
        raise RequestError("the gzip data is cut off or followed by other data")
    return body


def read_json(signal: Signal, body: bytes, limits: Limits) -> bytes:
    """Return the protobuf form of an OTLP/JSON request. Raises RequestError.

    The document is measured first: conversion takes about 12 us per JSON object, and up to 40 times the body in memory.
    """
    most = limits.request_bytes // 4
    if len(body) > most:
        raise TooLargeError(f"JSON larger than {most} bytes; protobuf may be four times as large")
    document = json_object(body, "OTLP")
    if body.count(b"{") > limits.json_objects and _count_objects(document) > limits.json_objects:
        raise TooLargeError(f"more than {limits.json_objects} JSON objects in one request")
    if not document:
        return b""
    try:
        return json_to_request(document) if signal is Signal.TRACES else json_to_logs(document)
    except DecodeError as error:
        raise RequestError(str(error)) from None


def json_object(body: bytes, name: str) -> Json:
    """Return the JSON object of a body; `name` says what was expected. Raises RequestError."""
    try:
        document: object = json.loads(body)
    except (ValueError, RecursionError):
        raise RequestError("not JSON, cut off, or nested too deeply") from None
    if not isinstance(document, dict):
        raise RequestError(f"not {name}: no JSON object")
    return cast("Json", document)


def _count_objects(document: object) -> int:
    count, left = 0, [document]
    while left:
        value = left.pop()
        if isinstance(value, dict):
            count += 1
            left += cast("Json", value).values()
        elif isinstance(value, list):
            left += cast("list[object]", value)
    return count


def check_traces(body: bytes, limits: Limits) -> Checked:
    """Check an ExportTraceServiceRequest. Raises RequestError for a malformed one, or one past a limit."""
    request = parse(body, ExportTraceServiceRequest, "trace")
    if body and not request.resource_spans:
        raise RequestError("not an OTLP trace request: it holds no resourceSpans")
    scopes = [scope for group in request.resource_spans for scope in group.scope_spans]
    spans = sum(len(scope.spans) for scope in scopes)
    limits.check_count(spans + len(scopes))
    limits.check_count(len(request.resource_spans))
    refusals: list[str] = []
    for scope in scopes:
        found = [check_ids(span) or limits.refusal(span) for span in scope.spans]
        for index in reversed([index for index, reason in enumerate(found) if reason]):
            del scope.spans[index]
        refusals += filter(None, found)
    if not refusals:
        return Checked(body, spans)
    return Checked(request.SerializeToString(), spans - len(refusals), len(refusals), refusals[0])


def parse(body: bytes, kind: type[_M], name: str) -> _M:
    """Parse a protobuf request. Raises RequestError.

    protobuf itself refuses text that is not UTF-8, and messages nested deeper than 100 levels.
    """
    try:
        return kind.FromString(body)
    except ProtobufError:
        reason = f"not an OTLP {name} request in protobuf, cut off, not UTF-8, or nested too deeply, past 100 levels"
        raise RequestError(reason) from None


def export_response(
    signal: Signal, acknowledgement: Acknowledgement
) -> ExportTraceServiceResponse | ExportLogsServiceResponse:
    """Return the OTLP reply to a request that was taken; without a partial success when nothing was rejected."""
    rejected, reason = acknowledgement.rejected, acknowledgement.reason
    if signal is Signal.TRACES:
        traces = ExportTraceServiceResponse()
        if rejected:
            traces.partial_success.rejected_spans, traces.partial_success.error_message = rejected, reason
        return traces
    logs = ExportLogsServiceResponse()
    if rejected:
        logs.partial_success.rejected_log_records, logs.partial_success.error_message = rejected, reason
    return logs
