"""OTLP over gRPC: the trace and the logs service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, NoReturn, cast

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from memtrace_otel.otlp.receiver.access import is_allowed
from memtrace_otel.otlp.receiver.intake import BusyError, Cause, Count, Intake, RequestError, Signal, TooLargeError
from memtrace_otel.otlp.receiver.limits import DEFLATE, GZIP, Limits, gunzip
from memtrace_otel.otlp.receiver.responses import export_response
from memtrace_otel.otlp.receiver.room import Held, Room

_SERVICES = {
    Signal.TRACES: "opentelemetry.proto.collector.trace.v1.TraceService",
    Signal.LOGS: "opentelemetry.proto.collector.logs.v1.LogsService",
}
_READING = 4
"""Most bodies that are being received: gRPC has one in memory twice before it can be counted."""
_READ_SECONDS = 15.0
"""Longest time that a body may take to arrive, and longest wait for the turn to receive it."""
_RETRY_SECONDS = 1
_PACKED = {b"\x1f\x8b": GZIP, b"\x78": DEFLATE}
"""How a packed body begins, and no OTLP request does; gRPC does not tell what a sender packs with."""
_OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.per_message_decompression", 0),  # it is done here, where the ratio has a limit
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 600_000),
    ("grpc.max_concurrent_streams", 100),
    ("grpc.http2.bdp_probe", 0),  # else a connection buffers megabytes of a body whose turn has not come
    ("grpc.http2.lookahead_bytes", 1 << 18),
)
Context = grpc.aio.ServicerContext[bytes, bytes]


def grpc_server(intake: Intake, limits: Limits, room: Room, refused: Count, token: str = "") -> grpc.aio.Server:
    """Return a server without a port; `refused` counts the requests that are refused.

    Bodies past the limit as they are sent are refused by gRPC itself.
    """
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", limits.request_bytes), *_OPTIONS])
    exports = _Exports(intake, limits, room, refused, token)
    for signal, service in _SERVICES.items():
        handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            # As a stream of one body: the call is seen before the body is received.
            "Export": grpc.stream_unary_rpc_method_handler(partial(exports.export, signal))
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    return server


class _Exports:
    """The one method of both services."""

    def __init__(self, intake: Intake, limits: Limits, room: Room, refused: Count, token: str) -> None:
        self._intake = intake
        self._limits = limits
        self._room = room
        self._refused = refused
        self._token = token
        self._reading = asyncio.Semaphore(_READING)

    async def export(self, signal: Signal, _: AsyncIterator[bytes], context: Context) -> bytes:
        if not is_allowed(_authorization(context), self._token):
            self._refused(Cause.UNAUTHORIZED)
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "a bearer token is needed")
        try:
            with self._room.hold() as held:
                acknowledgement = await self._intake.accept(await self._received(context, held), signal)
            return export_response(signal, acknowledgement).SerializeToString()
        except (RequestError, BusyError) as error:
            refusal = error.with_traceback(None)  # which has the body, and `abort` keeps what is being handled
        self._refused(refusal.cause)
        if isinstance(refusal, BusyError):
            return await _refuse_for_now(context, refusal)
        return await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(refusal))

    async def _received(self, context: Context, held: Held) -> bytes:
        try:
            await asyncio.wait_for(self._reading.acquire(), _READ_SECONDS)
        except TimeoutError:
            raise BusyError("too many other requests are being received", _RETRY_SECONDS, Cause.MEMORY) from None
        try:
            # not by the iterator that the handler is given: its frame keeps the body until the garbage is collected
            body = cast("object", await asyncio.wait_for(context.read(), _READ_SECONDS))
            if not isinstance(body, bytes):  # gRPC has said so already, if it was too large
                raise TooLargeError(f"a call without a request, or with one past {self._limits.request_bytes} bytes")
            held.grow(len(body))
            return await self._unpacked(body, held)
        except TimeoutError:
            raise BusyError("the body did not arrive in time", _RETRY_SECONDS, Cause.LATE) from None
        finally:
            self._reading.release()

    async def _unpacked(self, body: bytes, held: Held) -> bytes:
        window = next((window for start, window in _PACKED.items() if body.startswith(start)), None)
        if window is None:
            return body
        unpacked = await asyncio.to_thread(gunzip, body, self._limits, window)
        held.grow(len(unpacked))
        return unpacked


def _authorization(context: Context) -> str:
    metadata: Any = context.invocation_metadata() or ()
    return next((str(value) for key, value in metadata if key == "authorization"), "")


async def _refuse_for_now(context: Context, error: BusyError) -> NoReturn:
    """Say when to come again: in the status details, and where the Python exporter looks for it."""
    code = grpc.StatusCode.RESOURCE_EXHAUSTED if error.full else grpc.StatusCode.UNAVAILABLE
    retry = RetryInfo(retry_delay=Duration(seconds=error.retry_after))
    detail = AnyMessage()
    detail.Pack(retry)
    status = Status(code=code.value[0], message=str(error), details=[detail])
    trailers = (
        ("grpc-status-details-bin", status.SerializeToString()),
        ("google.rpc.retryinfo-bin", retry.SerializeToString()),
    )
    await context.abort(code, str(error), trailers)
