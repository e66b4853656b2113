"""Send encoded OTLP requests once, and say exactly what became of them.

The SDK's exporters are made for spans of the running program: they repeat a request whose answer was lost and log
instead of telling. Here an id may never arrive twice (some backends show it twice), and the user has to see a failure.
"""

from __future__ import annotations

import gzip
import re
import ssl
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPException, IncompleteRead
from pathlib import Path
from typing import NoReturn, TypeVar, cast
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

import grpc
from google.protobuf.json_format import Parse, ParseError
from google.protobuf.message import DecodeError
from opentelemetry.environment_variables import OTEL_LOGS_EXPORTER
from opentelemetry.instrumentation.utils import suppress_instrumentation
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceResponse,
)

from memtrace_otel.annotate.target import Target
from memtrace_otel.version import __version__

R = TypeVar("R", ExportTraceServiceResponse, ExportLogsServiceResponse)
_METHOD = {
    "traces": "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    "logs": "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
}
_USER_AGENT = f"memtrace-otel/{__version__}"
_REPLY_BYTES = 1 << 20
_NO_LOGS = frozenset({403, 404, 405, 501})
_REFUSED = frozenset({400, 403, 413, 422})
_NO_LOGS_CALL = (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.PERMISSION_DENIED)
_REFUSED_CALL = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.PERMISSION_DENIED)
_UNKNOWN = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
_NO_TENANT = "no org id"
"""Of Tempo, which says that it is unavailable (503)."""
_SAYS_ERROR = re.compile(rb'"errors?"')
_HTTP = "http1.x server"
"""Of gRPC, which says that it is unavailable."""
_GRPC = " (OTEL_EXPORTER_OTLP_PROTOCOL=grpc says that it is the port of gRPC)"
"""A port of gRPC breaks the connection off, or answers what is not HTTP/1."""
_WHO = " (OTEL_EXPORTER_OTLP_HEADERS says who sends: a token or a tenant, such as x-scope-orgid=acme)"


class SendError(Exception):
    """A request was not accepted, or not all of it. Names the receiver and its reason.

    `unsupported` is true when the receiver does not take this signal at all (Jaeger and logs, for example), `refused`
    when it takes no such request, perhaps not from us: it may take others. `partial` is true when so many of it were
    `rejected`, for that `reason`, and the rest was taken: OTLP says not to repeat such a request by oneself.
    """

    def __init__(
        self,
        target: Target,
        reason: str,
        *,
        unsupported: bool = False,
        refused: bool = False,
        partial: bool = False,
        rejected: int = 0,
    ) -> None:
        told = f"{rejected} rejected: {reason}" if rejected else reason
        if target.signal == "logs":
            told += f" ({OTEL_LOGS_EXPORTER}=none sends no events)"
        super().__init__(f"cannot send {target.signal} to {target} ({target.protocol}): {told}")
        self.target = target
        self.reason = reason
        self.unsupported = unsupported
        self.refused = refused
        self.partial = partial
        self.rejected = rejected


class _NoRedirects(HTTPRedirectHandler):
    """A redirect would become a GET without the body, and take the headers elsewhere: it is an error like others."""

    def redirect_request(self, req: Request, fp: object, code: int, msg: str, headers: object, newurl: str) -> None:
        return None


def send(target: Target, body: bytes) -> None:
    """Send one encoded request; returns when the receiver has taken all of it. Raises SendError otherwise."""
    with suppress_instrumentation():
        reply = _send_grpc(target, body) if target.protocol == "grpc" else _send_http(target, body)
    _check_reply(target, reply)


def _send_http(target: Target, body: bytes) -> bytes:
    headers = {**target.headers, "content-type": "application/x-protobuf", "user-agent": _USER_AGENT}
    if target.gzip:
        headers["content-encoding"] = "gzip"
        body = gzip.compress(body)
    request = Request(target.endpoint, data=body, headers=headers, method="POST")
    try:
        opener = build_opener(HTTPSHandler(context=_tls(target)), _NoRedirects)
        with opener.open(request, timeout=target.timeout) as reply:
            body = reply.read(_REPLY_BYTES)
            if reply.length and len(body) < _REPLY_BYTES:
                raise IncompleteRead(body, reply.length)
            return body
    except HTTPError as error:
        said = b""
        with suppress(OSError, HTTPException):
            said = error.read(_REPLY_BYTES)
        reason = f"HTTP {error.code} {error.reason}"
        if error.code in (401, 403) or _NO_TENANT.encode() in said:
            reason += _WHO
        unsupported = error.code in _NO_LOGS and target.signal == "logs"
        _refuse(target, reason, unsupported=unsupported, refused=error.code in _REFUSED)
    except URLError as error:
        _refuse(target, f"{error.reason}{_GRPC if isinstance(error.reason, ConnectionResetError) else ''}")
    except ConnectionResetError as error:
        _refuse(target, f"{error}{_GRPC}")
    except (OSError, ValueError) as error:
        _refuse(target, str(error) or type(error).__name__)
    except HTTPException as error:  # its text may be what came, whatever that is
        _refuse(target, f"{type(error).__name__}{'' if isinstance(error, IncompleteRead) else _GRPC}")


def _tls(target: Target) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=target.certificate or None)
    if target.client_certificate:
        context.load_cert_chain(target.client_certificate, target.client_key or None)
    return context


def _send_grpc(target: Target, body: bytes) -> bytes:
    address = urlsplit(target.endpoint).netloc.rpartition("@")[2] if "://" in target.endpoint else target.endpoint
    compression = grpc.Compression.Gzip if target.gzip else grpc.Compression.NoCompression
    try:
        credentials = None if target.insecure else _credentials(target)
    except OSError as error:
        _refuse(target, str(error))
    channel = (
        grpc.insecure_channel(address, compression=compression)
        if credentials is None
        else grpc.secure_channel(address, credentials, compression=compression)
    )
    with channel:
        export = cast("Callable[..., bytes]", channel.unary_unary(_METHOD[target.signal]))
        try:
            return export(body, timeout=target.timeout, metadata=tuple(target.headers.items()))
        except grpc.RpcError as error:
            code = error.code()
            reason = f"{code.name} {error.details()}"
            if code in _UNKNOWN or _NO_TENANT in reason:
                reason += _WHO
            if _HTTP in reason:
                reason += " (OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf says that it is the port of OTLP/HTTP)"
            unsupported = code is grpc.StatusCode.UNIMPLEMENTED or (code in _NO_LOGS_CALL and target.signal == "logs")
            _refuse(target, reason, unsupported=unsupported, refused=code in _REFUSED_CALL)


def _credentials(target: Target) -> grpc.ChannelCredentials:
    def pem(path: str) -> bytes | None:
        return Path(path).read_bytes() if path else None

    return grpc.ssl_channel_credentials(pem(target.certificate), pem(target.client_key), pem(target.client_certificate))


def _check_reply(target: Target, reply: bytes) -> None:
    """Raise SendError when the receiver took only a part (a success to OTLP, a loss to us)."""
    rejected, reason = 0, ""
    try:
        if target.signal == "traces":
            part = _read(reply, ExportTraceServiceResponse()).partial_success
            rejected, reason = part.rejected_spans, part.error_message
        else:
            part = _read(reply, ExportLogsServiceResponse()).partial_success
            rejected, reason = part.rejected_log_records, part.error_message
    except (ParseError, UnicodeDecodeError, RecursionError):  # a page of something in between
        _refuse(target, "the reply is not an OTLP reply")
    if rejected:
        raise SendError(target, reason, partial=True, rejected=rejected)


def _read(reply: bytes, response: R) -> R:
    """A reply in protobuf, or in JSON, which some give to any request. Raises ParseError, UnicodeDecodeError,
    RecursionError."""
    try:
        response.ParseFromString(reply)
        return response
    except DecodeError:
        if not reply.lstrip().startswith(b"{") or _SAYS_ERROR.search(reply):
            raise ParseError from None
        response.Clear()
        return Parse(reply, response, ignore_unknown_fields=True)


def _refuse(target: Target, reason: str, *, unsupported: bool = False, refused: bool = False) -> NoReturn:
    raise SendError(target, reason, unsupported=unsupported, refused=refused) from None
