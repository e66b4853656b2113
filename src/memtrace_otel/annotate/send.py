"""Send one encoded OTLP request, once, and report exactly what became of it.

The exporters of the SDK repeat a request whose reply was lost, and log failures instead of raising them. Here a span id
must never arrive twice, since some backends show it twice, and the user has to see a failure.
"""

from __future__ import annotations

import gzip
import ssl
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import NoReturn, cast
from urllib.parse import urlsplit

import grpc
import httpx
from opentelemetry.environment_variables import OTEL_LOGS_EXPORTER
from opentelemetry.instrumentation.utils import suppress_instrumentation

from memtrace_otel.annotate.target import Target
from memtrace_otel.model.printable import one_line
from memtrace_otel.otlp.reply import ReplyError, read_rejected, refusal
from memtrace_otel.version import __version__

_METHOD = {
    "traces": "/opentelemetry.proto.collector.trace.v1.TraceService/Export",
    "logs": "/opentelemetry.proto.collector.logs.v1.LogsService/Export",
}
_USER_AGENT = f"memtrace-otel/{__version__}"
_REPLY_BYTES = 1 << 20
_SHOWN = 200
"""Characters of a receiver's own words in an error."""
_NO_LOGS = frozenset({403, 404, 405, 501})
_REFUSED = frozenset({400, 403, 413, 422})
_NO_LOGS_CALL = (grpc.StatusCode.UNIMPLEMENTED, grpc.StatusCode.PERMISSION_DENIED)
_REFUSED_CALL = (grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.PERMISSION_DENIED)
_UNAUTHENTICATED = (grpc.StatusCode.UNAUTHENTICATED, grpc.StatusCode.PERMISSION_DENIED)
_OTHER_PROTOCOL = " (does this port speak gRPC? Then set OTEL_EXPORTER_OTLP_PROTOCOL=grpc)"
_CREDENTIALS = " (set a token or a tenant in OTEL_EXPORTER_OTLP_HEADERS, for example x-scope-orgid=acme)"


class SendError(Exception):
    """A receiver did not accept a request, or not all of it. Names the receiver and its reason.

    `unsupported`: the receiver does not take this signal at all (Jaeger takes no logs, for example). `refused`: the
    receiver takes no such request, perhaps not from this sender; other requests may be taken. `partial`: the receiver
    took the request and `rejected` that many items, for that `reason`. OTLP forbids to repeat such a request.
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
        text = f"{rejected} rejected: {reason}" if rejected else reason
        if target.signal == "logs":
            text += f" ({OTEL_LOGS_EXPORTER}=none sends no events)"
        super().__init__(f"cannot send {target.signal} to {target} ({target.protocol}): {text}")
        self.target = target
        self.reason = reason
        self.unsupported = unsupported
        self.refused = refused
        self.partial = partial
        self.rejected = rejected


def send(target: Target, body: bytes) -> None:
    """Send one encoded request. Returns when the receiver has taken all of it; raises SendError otherwise."""
    with suppress_instrumentation():
        if target.protocol == "grpc":
            rejected, reason = _send_grpc(target, body)
        else:
            rejected, reason = _send_http(target, body)
    if rejected:
        raise SendError(target, reason, partial=True, rejected=rejected)


def _send_http(target: Target, body: bytes) -> tuple[int, str]:
    headers = {**target.headers, "content-type": "application/x-protobuf", "user-agent": _USER_AGENT}
    if target.gzip:
        headers["content-encoding"] = "gzip"
        body = gzip.compress(body)
    try:
        with (
            httpx.Client(verify=_tls(target), timeout=target.timeout) as client,
            client.stream("POST", target.endpoint, content=body, headers=headers) as reply,
        ):
            said = _read(reply, time.monotonic() + target.timeout)
    except (httpx.RemoteProtocolError, httpx.ReadError) as error:  # the text of the error may be what came
        incomplete = "complete message body" in str(error)
        _fail(target, "the reply is incomplete" if incomplete else f"{type(error).__name__}{_OTHER_PROTOCOL}")
    except (httpx.HTTPError, httpx.InvalidURL, OSError, ValueError) as error:
        _fail(target, str(error) or type(error).__name__)
    status = reply.status_code
    if problem := refusal(status, reply.headers.get("content-type", ""), said):
        if not reply.is_success and (words := one_line(said.decode("utf-8", "ignore"), _SHOWN)):
            problem += f": {words}"
        if status in (401, 403):
            problem += _CREDENTIALS
        unsupported = status in _NO_LOGS and target.signal == "logs"
        _fail(target, problem, unsupported=unsupported, refused=status in _REFUSED)
    try:
        return read_rejected(target.signal, said)
    except ReplyError as error:
        _fail(target, str(error))


def _read(reply: httpx.Response, end: float) -> bytes:
    """Read the beginning of a reply until `end` (monotonic): a receiver that drips must not hold the sender."""
    said = b""
    for part in reply.iter_bytes():
        said += part
        if len(said) > _REPLY_BYTES or time.monotonic() > end:
            break
    return said[:_REPLY_BYTES]


def _tls(target: Target) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=target.certificate or None)
    if target.client_certificate:
        context.load_cert_chain(target.client_certificate, target.client_key or None)
    return context


def _send_grpc(target: Target, body: bytes) -> tuple[int, str]:
    address = urlsplit(target.endpoint).netloc.rpartition("@")[2] if "://" in target.endpoint else target.endpoint
    compression = grpc.Compression.Gzip if target.gzip else grpc.Compression.NoCompression
    options = (("grpc.primary_user_agent", _USER_AGENT),)
    with ExitStack() as stack:
        try:
            if target.insecure:
                channel = grpc.insecure_channel(address, options, compression)
            else:
                channel = grpc.secure_channel(address, _credentials(target), options, compression)
            stack.enter_context(channel)
            export = cast("Callable[..., bytes]", channel.unary_unary(_METHOD[target.signal]))
            return read_rejected(
                target.signal, export(body, timeout=target.timeout, metadata=tuple(target.headers.items()))
            )
        except ReplyError as error:
            _fail(target, str(error))
        except OSError as error:
            _fail(target, str(error))
        except grpc.RpcError as error:
            code = error.code()
            reason = f"{code.name} {error.details()}{_CREDENTIALS if code in _UNAUTHENTICATED else ''}"
            unsupported = code is grpc.StatusCode.UNIMPLEMENTED or (code in _NO_LOGS_CALL and target.signal == "logs")
            _fail(target, reason, unsupported=unsupported, refused=code in _REFUSED_CALL)


def _credentials(target: Target) -> grpc.ChannelCredentials:
    def pem(path: str) -> bytes | None:
        return Path(path).read_bytes() if path else None

    return grpc.ssl_channel_credentials(pem(target.certificate), pem(target.client_key), pem(target.client_certificate))


def _fail(target: Target, reason: str, *, unsupported: bool = False, refused: bool = False) -> NoReturn:
    raise SendError(target, reason, unsupported=unsupported, refused=refused) from None
