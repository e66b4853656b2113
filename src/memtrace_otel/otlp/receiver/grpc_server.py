"""OTLP over gRPC: the trace and the logs service."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NoReturn

import grpc
from google.protobuf.any_pb2 import Any as AnyMessage
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status

from memtrace_otel.otlp.receiver.access import is_allowed
from memtrace_otel.otlp.receiver.intake import BusyError, Intake, RequestError, Signal
from memtrace_otel.otlp.receiver.limits import Limits
from memtrace_otel.otlp.receiver.responses import export_response

_SERVICES = {
    Signal.TRACES: "opentelemetry.proto.collector.trace.v1.TraceService",
    Signal.LOGS: "opentelemetry.proto.collector.logs.v1.LogsService",
}
_CONCURRENT = 64
Context = grpc.aio.ServicerContext[bytes, bytes]


def grpc_server(intake: Intake, limits: Limits, token: str = "") -> grpc.aio.Server:
    """Return a server without a port. Bodies past the limit, packed or unpacked, are refused by gRPC itself."""
    server = grpc.aio.server(
        options=[("grpc.max_receive_message_length", limits.request_bytes), ("grpc.so_reuseport", 0)],
        maximum_concurrent_rpcs=_CONCURRENT,
    )
    for signal, service in _SERVICES.items():
        handlers: dict[str, grpc.RpcMethodHandler[bytes, bytes]] = {
            "Export": grpc.unary_unary_rpc_method_handler(_export(intake, signal, token))
        }
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
    return server


def _export(intake: Intake, signal: Signal, token: str) -> Callable[[bytes, Context], Awaitable[bytes]]:
    async def export(body: bytes, context: Context) -> bytes:
        if not is_allowed(_authorization(context), token):
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, "a bearer token is needed")
        try:
            acknowledgement = await intake.accept(body, signal)
        except RequestError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
        except BusyError as error:
            await _refuse_for_now(context, error)
        return export_response(signal, acknowledgement).SerializeToString()

    return export


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
