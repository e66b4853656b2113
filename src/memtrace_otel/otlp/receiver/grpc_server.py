"""OTLP over gRPC: the trace service and the logs service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Any, NoReturn, cast

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from memtrace_otel.otlp.receiver.requests import (
    DEFLATE,
    GZIP,
    BusyError,
    Cause,
    Count,
    InFlightBytes,
    Intake,
    Limits,
    RequestError,
    Signal,
    TooLargeError,
    export_response,
    gunzip,
    is_allowed,
)

_SERVICES = {
    Signal.TRACES: "opentelemetry.proto.collector.trace.v1.TraceService",
    Signal.LOGS: "opentelemetry.proto.collector.logs.v1.LogsService",
}
_READING = 4
"""Bodies that are received at a time: gRPC holds a body twice before its bytes are counted."""
_READ_SECONDS = 15.0
"""Longest time for a body to arrive, and longest wait before it is received."""
_RETRY_SECONDS = 1
_COMPRESSED = {b"\x1f\x8b": GZIP, b"\x78": DEFLATE}
"""First bytes of a compressed body. No OTLP request begins so; gRPC does not say how a sender compresses."""
_OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.per_message_decompression", 0),  # inflated here, where size and ratio have limits
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 60_000),  # an idle sender takes the place of another one
    ("grpc.max_concurrent_streams", 100),
    ("grpc.http2.bdp_probe", 0),  # otherwise a connection buffers megabytes of a body that waits
    ("grpc.http2.lookahead_bytes", 1 << 18),
)
Context = grpc.aio.ServicerContext[bytes, bytes]


def grpc_server(
    intake: Intake, limits: Limits, in_flight: InFlightBytes, refused: Count, connections: int, token: str = ""
) -> grpc.aio.Server:
    """Return a server without a port. `connections` is how many it keeps open; gRPC closes any further one.

    `refused` counts refused requests. gRPC itself refuses a body past the size limit as it is sent.
    """
    bounds = (
        ("grpc.max_receive_message_length", limits.request_bytes),
        ("grpc.max_allowed_incoming_connections", connections),
    )
    server = grpc.aio.server(options=[*bounds, *_OPTIONS])
    exports = _Exports(intake, limits, in_flight, refused, token)
    for signal, service in _SERVICES.items():
        handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            # As a stream of one body: the call is seen before the body is received.
            "Export": grpc.stream_unary_rpc_method_handler(partial(exports.export, signal))
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    return server


class _Exports:
    """The method `Export` of both services."""

    def __init__(self, intake: Intake, limits: Limits, in_flight: InFlightBytes, refused: Count, token: str) -> None:
        self._intake = intake
        self._limits = limits
        self._in_flight = in_flight
        self._refused = refused
        self._token = token
        self._reading = asyncio.Semaphore(_READING)

    async def export(self, signal: Signal, _: AsyncIterator[bytes], context: Context) -> bytes:
        metadata: Any = context.invocation_metadata() or ()
        authorization = next((str(value) for key, value in metadata if key == "authorization"), "")
        if not is_allowed(authorization, self._token):
            self._refused(Cause.UNAUTHORIZED)
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "a bearer token is needed")
        try:
            with self._in_flight.request() as add:
                acknowledgement = await self._intake.accept(await self._received(context, add), signal)
            return export_response(signal, acknowledgement).SerializeToString()
        except (RequestError, BusyError) as error:
            refusal = error.with_traceback(None)  # the traceback holds the body, and `abort` keeps the exception
        self._refused(refusal.cause)
        if isinstance(refusal, BusyError):
            return await _refuse_for_now(context, refusal)
        return await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(refusal))

    async def _received(self, context: Context, add: Callable[[int], None]) -> bytes:
        try:
            await asyncio.wait_for(self._reading.acquire(), _READ_SECONDS)
        except TimeoutError:
            raise BusyError("too many other requests are being received", _RETRY_SECONDS, Cause.MEMORY) from None
        try:
            # Not the iterator of the handler: its frame keeps the body until the next garbage collection.
            body = cast("object", await asyncio.wait_for(context.read(), _READ_SECONDS))
            if not isinstance(body, bytes):  # gRPC has already refused a body past the limit
                raise TooLargeError(f"a call without a request, or with one past {self._limits.request_bytes} bytes")
            add(len(body))
            window = next((window for start, window in _COMPRESSED.items() if body.startswith(start)), None)
            if window is not None:
                body = await asyncio.to_thread(gunzip, body, self._limits, window)
                add(len(body))
            return body
        except TimeoutError:
            raise BusyError("the body did not arrive in time", _RETRY_SECONDS, Cause.LATE) from None
        finally:
            self._reading.release()


async def _refuse_for_now(context: Context, error: BusyError) -> NoReturn:
    """Say when to try again: in the status details, and where the Python exporter reads it."""
    code = grpc.StatusCode.RESOURCE_EXHAUSTED if error.is_overload else grpc.StatusCode.UNAVAILABLE
    retry = RetryInfo(retry_delay=Duration(seconds=error.retry_after))
    detail = AnyMessage()
    detail.Pack(retry)
    status = Status(code=code.value[0], message=str(error), details=[detail])
    trailers = (
        ("grpc-status-details-bin", status.SerializeToString()),
        ("google.rpc.retryinfo-bin", retry.SerializeToString()),
    )
    await context.abort(code, str(error), trailers)
