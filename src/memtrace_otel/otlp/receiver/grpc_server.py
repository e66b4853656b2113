"""OTLP over gRPC: the trace and the logs service."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, NoReturn, cast

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from memtrace_otel.otlp.receiver.access import is_allowed
from memtrace_otel.otlp.receiver.intake import Acknowledgement, BusyError, Intake, RequestError, Signal
from memtrace_otel.otlp.receiver.limits import Limits
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
_OPTIONS = (
    ("grpc.so_reuseport", 0),
    ("grpc.server_handshake_timeout_ms", 10_000),
    ("grpc.max_connection_idle_ms", 600_000),
    ("grpc.max_concurrent_streams", 100),
    ("grpc.http2.bdp_probe", 0),  # else a connection buffers megabytes of a body whose turn has not come
    ("grpc.http2.lookahead_bytes", 1 << 18),
)
Context = grpc.aio.ServicerContext[bytes, bytes]


def grpc_server(intake: Intake, limits: Limits, room: Room, token: str = "") -> grpc.aio.Server:
    """Return a server without a port. Bodies past the limit, packed or unpacked, are refused by gRPC itself."""
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", limits.request_bytes), *_OPTIONS])
    reading = asyncio.Semaphore(_READING)
    for signal, service in _SERVICES.items():
        handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            # As a stream of one body: the call is seen before the body is received.
            "Export": grpc.stream_unary_rpc_method_handler(_export(intake, signal, room, reading, token))
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    return server


def _export(
    intake: Intake, signal: Signal, room: Room, reading: asyncio.Semaphore, token: str
) -> Callable[[AsyncIterator[bytes], Context], Awaitable[bytes]]:
    async def export(_: AsyncIterator[bytes], context: Context) -> bytes:
        if not is_allowed(_authorization(context), token):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "a bearer token is needed")
        try:
            with room.hold() as held:
                acknowledgement = await _taken(context, held)
            return export_response(signal, acknowledgement).SerializeToString()
        except (RequestError, BusyError) as error:
            refusal = error.with_traceback(None)  # which has the body, and `abort` keeps what is being handled
        if isinstance(refusal, BusyError):
            return await _refuse_for_now(context, refusal)
        return await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(refusal))

    async def _taken(context: Context, held: Held) -> Acknowledgement:
        body = await _received(context, reading)
        held.grow(len(body))
        return await intake.accept(body, signal)

    return export


async def _received(context: Context, reading: asyncio.Semaphore) -> bytes:
    try:
        await asyncio.wait_for(reading.acquire(), _READ_SECONDS)
    except TimeoutError:
        raise BusyError("too many other requests are being received", _RETRY_SECONDS) from None
    try:
        # not by the iterator that the handler is given: its frame keeps the body until the garbage is collected
        body = cast("object", await asyncio.wait_for(context.read(), _READ_SECONDS))
    except TimeoutError:
        raise BusyError("the body did not arrive in time", _RETRY_SECONDS) from None
    finally:
        reading.release()
    if not isinstance(body, bytes):
        raise RequestError("a call without a request")
    return body


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
