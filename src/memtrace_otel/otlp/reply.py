"""Replies of OTLP receivers over HTTP: did the receiver take the data, and how much of it?

A proxy or a login page in front of a receiver may answer with a redirect, or with a web page and status 200.
HTTP clients report both as a success, and the data is lost. Every sender of this package asks here.
"""

from __future__ import annotations

import re
from http.client import responses
from typing import Literal

from google.protobuf.json_format import Parse, ParseError
from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

Signal = Literal["traces", "logs"]
_JSON_ERROR = re.compile(rb'"errors?"')
_NOT_OTLP = "the reply is not an OTLP reply"


class ReplyError(ValueError):
    """A reply that no OTLP receiver gives."""


def refusal(status: int, content_type: str = "", body: bytes = b"") -> str:
    """Return why a reply is no success, `''` for a success: any status but 2xx, a redirect, a web page.

    Call it with redirects switched off: the request after a redirect has no body.
    """
    named = f"HTTP {status} {responses.get(status, '')}".rstrip()
    if 300 <= status < 400:
        return f"{named}: the endpoint redirects, so it is not the address of the receiver"
    if not 200 <= status < 300:
        return named
    if "html" in content_type.lower() or body.lstrip()[:1] == b"<":
        return f"{_NOT_OTLP}, but a web page ({named})"
    return ""


def read_rejected(signal: Signal, body: bytes) -> tuple[int, str]:
    """Return how many spans or log records the receiver rejected, and its reason; (0, ...) when it took all.

    Some receivers answer every request in JSON. Raises ReplyError when the body is no OTLP reply.
    """
    reply = ExportTraceServiceResponse() if signal == "traces" else ExportLogsServiceResponse()
    try:
        try:
            reply.ParseFromString(body)
        except DecodeError:
            if not body.lstrip().startswith(b"{") or _JSON_ERROR.search(body):
                raise ReplyError(_NOT_OTLP) from None
            reply.Clear()
            Parse(body, reply, ignore_unknown_fields=True)
    except (ParseError, UnicodeDecodeError, RecursionError):
        raise ReplyError(_NOT_OTLP) from None
    if isinstance(reply, ExportLogsServiceResponse):
        return reply.partial_success.rejected_log_records, reply.partial_success.error_message
    return reply.partial_success.rejected_spans, reply.partial_success.error_message
