"""A failing answer whose fact was overwritten in an earlier trace, and OTLP receivers on loopback."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from concurrent import futures
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1 import trace_service_pb2_grpc
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)

from memtrace_otel.model import Alternative, Failure, OperationSpan, Step, Verdict
from memtrace_otel.otlp import encode_request
from memtrace_otel.sources import SqliteStore

ASKED, TOLD = "a" * 32, "b" * 32
SECOND = 1_000_000_000
RESOURCE = {"service.name": "assistant", "host.name": "laptop"}


def span(trace_id: str, span_id: str, name: str, start: int, end: int, **fields: object) -> OperationSpan:
    return OperationSpan(
        trace_id=trace_id, span_id=span_id, name=name, start=start, end=end, resource=RESOURCE, **fields
    )


UPDATE = span(TOLD, "b" * 16, "update_memory", 10 * SECOND, 11 * SECOND, kind="update", system="mem0")
ANSWER = span(
    ASKED,
    "a" * 16,
    "chat gpt-4o",
    100 * SECOND,
    102 * SECOND,
    kind="respond",
    system="mem0",
    attributes={"gen_ai.response.id": "reply-7"},
)


def verdict_on(decisive: OperationSpan | None, **changes: object) -> Verdict:
    """Return a verdict that blames `decisive`."""
    fields: dict[str, object] = {
        "failure": Failure(ANSWER),
        "failure_type": "update",
        "trace_id": decisive.trace_id if decisive else "",
        "span_id": decisive.span_id if decisive else "",
        "operation": decisive.name if decisive else "",
        "operation_kind": decisive.kind if decisive else "",
        "variable": "memory:m-1",
        "confidence": 0.875,
        "reason": "The update replaced Lisbon by Porto.",
        "evidence": (Step("source", "message:7", ""), Step("loss", "memory:m-1", UPDATE.origin, "Lisbon is gone")),
        "alternatives": (Alternative("retrieval", ASKED, "a" * 16, 0.125), Alternative("unknown", "", "", 0.05)),
        "when": decisive.start if decisive else 0,
        "method": "rules",
    }
    return Verdict(**{**fields, **changes})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    """A database that holds the telling and the asking trace."""
    with SqliteStore.open(tmp_path / "memtrace.db") as store:
        store.add_request(encode_request([UPDATE, ANSWER]))
        yield store


@pytest.fixture(autouse=True)
def no_receiver(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)


@dataclass
class Receiver:
    """What an OTLP receiver got; `status`, `reply` and, over gRPC, `refusal` are what it answers with; over HTTP the
    statuses `first` are the answers to the first requests."""

    endpoint: str = ""
    traces: list[bytes] = field(default_factory=list)
    logs: list[bytes] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    status: dict[str, int] = field(default_factory=dict)
    first: list[int] = field(default_factory=list)
    reply: bytes = b""
    location: str = ""
    refusal: tuple[grpc.StatusCode, str] | None = None

    def span_ids(self) -> list[str]:
        return [
            span.span_id.hex()
            for body in self.traces
            for resource_spans in ExportTraceServiceRequest.FromString(body).resource_spans
            for scope_spans in resource_spans.scope_spans
            for span in scope_spans.spans
        ]


@pytest.fixture
def http_receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """An OTLP/HTTP receiver, named by the environment."""
    received = Receiver()
    with http_receiver_on(0, received):
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.endpoint)
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "http/protobuf")
        yield received


@contextmanager
def http_receiver_on(port: int, received: Receiver) -> Iterator[None]:
    """Receive on a port of loopback, 0: a free one."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            received.headers.append({name.lower(): value for name, value in self.headers.items()})
            status = received.first.pop(0) if received.first else received.status.get(self.path, 200)
            if status == 200:
                (received.traces if self.path == "/v1/traces" else received.logs).append(body)
            self.send_response(status)
            if received.location:
                self.send_header("location", received.location)
            self.end_headers()
            self.wfile.write(received.reply)

        def do_GET(self) -> None:
            received.headers.append({name.lower(): value for name, value in self.headers.items()})
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    received.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.fixture
def grpc_receiver(monkeypatch: pytest.MonkeyPatch) -> Iterator[Receiver]:
    """An OTLP/gRPC receiver of traces only, as Jaeger is one."""
    received = Receiver()

    class Traces(trace_service_pb2_grpc.TraceServiceServicer):
        def Export(
            self, request: ExportTraceServiceRequest, context: grpc.ServicerContext
        ) -> ExportTraceServiceResponse:
            received.headers.append({key: str(value) for key, value in context.invocation_metadata()})
            if received.refusal:
                context.abort(*received.refusal)
            received.traces.append(request.SerializeToString())
            return ExportTraceServiceResponse()

    server = grpc.server(futures.ThreadPoolExecutor(1))
    trace_service_pb2_grpc.add_TraceServiceServicer_to_server(Traces(), server)
    received.endpoint = f"http://127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", received.endpoint)
    server.start()
    yield received
    server.stop(None).wait()
