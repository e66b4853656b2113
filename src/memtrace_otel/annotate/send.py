"""Send encoded OTLP requests once, and say exactly what became of them.

The SDK's exporters are made for spans of the running program: they repeat a request whose answer was lost and log
instead of telling. Here an id may never arrive twice (some backends show it twice), and the user has to see a failure.
"""

from __future__ import annotations

import gzip
import ssl
from collections.abc import Callable
from contextlib import suppress
from http.client import HTTPException
from pathlib import Path
from typing import NoReturn, cast
from urllib.error import HTTPError, URLError
from urllib.parse import urlsplit
from urllib.request import HTTPRedirectHandler, HTTPSHandler, Request, build_opener

import grpc
from google.protobuf.message import DecodeError
from opentelemetry.environment_variables import OTEL_LOGS_EXPORTER
from opentelemetry.instrumentation.utils import suppress_instrumentation
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceResponse,
)

from memtrace_otel.annotate.target import Target
from memtrace_otel.version import __version__

_METHOD = {
    "traces": "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    "logs": "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
}
_USER_AGENT = f"memtrace-otel/{__version__}"
_REPLY_BYTES = 1 << 20
_NOT_THERE = frozenset({404, 405, 501})
_UNKNOWN = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
_NO_TENANT = "no org id"
"""Of Tempo, which says that it is unavailable (503)."""
_WHO = " (OTEL_EXPORTER_OTLP_HEADERS says who sends: a token or a tenant, such as x-scope-orgid=acme)"


class SendError(Exception):
    """A request was not accepted, or not all of it. Names the receiver and its reason.

    `unsupported` is true when the receiver does not take this signal at all (Jaeger and logs, for example).
    `partial` is true when it has answered, and taken the rest: OTLP says not to repeat such a request by oneself. Of
    it were so many `rejected`, for that `reason`; 0 when the answer does not say so.
    """

    def __init__(
        self, target: Target, reason: str, *, unsupported: bool = False, partial: bool = False, rejected: int = 0
    ) -> None:
        told = f"{rejected} rejected: {reason}" if rejected else reason
        if target.signal == "logs":
            told += f" ({OTEL_LOGS_EXPORTER}=none sends no events)"
        super().__init__(f"cannot send {target.signal} to {target} ({target.protocol}): {told}")
        self.target = target
        self.reason = reason
        self.unsupported = unsupported
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
            return reply.read(_REPLY_BYTES)
    except HTTPError as error:
        said = b""
        with suppress(OSError, HTTPException):
            said = error.read(_REPLY_BYTES)
        reason = f"HTTP {error.code} {error.reason}"
        if error.code in (401, 403) or _NO_TENANT.encode() in said:
            reason += _WHO
        _refuse(target, reason, unsupported=error.code in _NOT_THERE and target.signal == "logs")
    except URLError as error:
        _refuse(target, str(error.reason))
    except (OSError, ValueError) as error:
        _refuse(target, str(error) or type(error).__name__)


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
            _refuse(target, reason, unsupported=code is grpc.StatusCode.UNIMPLEMENTED)


def _credentials(target: Target) -> grpc.ChannelCredentials:
    def pem(path: str) -> bytes | None:
        return Path(path).read_bytes() if path else None

    return grpc.ssl_channel_credentials(pem(target.certificate), pem(target.client_key), pem(target.client_certificate))


def _check_reply(target: Target, reply: bytes) -> None:
    """Raise SendError when the receiver took only a part (a success to OTLP, a loss to us)."""
    rejected, reason = 0, ""
    try:
        if target.signal == "traces":
            part = ExportTraceServiceResponse.FromString(reply).partial_success
            rejected, reason = part.rejected_spans, part.error_message
        else:
            part = ExportLogsServiceResponse.FromString(reply).partial_success
            rejected, reason = part.rejected_log_records, part.error_message
    except DecodeError:
        _refuse(target, "the reply is not an OTLP reply", partial=True)
    if rejected:
        raise SendError(target, reason, partial=True, rejected=rejected)


def _refuse(target: Target, reason: str, *, unsupported: bool = False, partial: bool = False) -> NoReturn:
    raise SendError(target, reason, unsupported=unsupported, partial=partial) from None
