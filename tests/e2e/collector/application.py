"""An application that answers requests with a memory, observed as users do it: SDK, lossless processor, OTLP."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import format_span_id, format_trace_id

from memtrace_otel.capture import operation
from memtrace_otel.capture.delivery import LosslessSpanProcessor

_PAUSE = 0.02


@dataclass
class Application:
    """Sends to `endpoint` (host:port, gRPC). `traces` holds per trace the ids of its spans, `memory` those that the
    side branch is for; `slowest` and `busy` are the seconds that its longest request and all of them took."""

    endpoint: str
    spool: Path
    service: str = "assistant"
    traces: dict[str, set[str]] = field(default_factory=dict[str, set[str]])
    memory: set[str] = field(default_factory=set[str])
    slowest: float = 0.0
    busy: float = 0.0

    def __enter__(self) -> Self:
        self._provider = TracerProvider(resource=Resource({"service.name": self.service}))
        exporter = OTLPSpanExporter(endpoint=self.endpoint, insecure=True)
        self._provider.add_span_processor(LosslessSpanProcessor(exporter, spool_dir=self.spool))
        self._tracer = self._provider.get_tracer("application")
        return self

    def __exit__(self, *_: object) -> None:
        self._provider.shutdown()

    def delivered(self) -> bool:
        """Try to deliver what it kept meanwhile; tell whether everything is acknowledged."""
        return self._provider.force_flush(10_000)

    @property
    def spans(self) -> set[str]:
        """The ids of everything that was sent."""
        return {span_id for trace in self.traces.values() for span_id in trace}

    def run(self, seconds: float) -> None:
        """Answer requests, fewer than fifty per second."""
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            started = time.perf_counter()
            self.request()
            took = time.perf_counter() - started
            self.slowest, self.busy = max(self.slowest, took), self.busy + took
            time.sleep(_PAUSE)

    def request(self, *, content: str = "Ana lives in Lisbon.") -> str:
        """Answer one request; return its trace id. Its root and a query are no memory operations, two spans are."""
        tracer = self._tracer
        with tracer.start_as_current_span("GET /answer") as root:
            context = root.get_span_context()
            trace_id, ids = format_trace_id(context.trace_id), {format_span_id(context.span_id)}
            scope = f"{trace_id[:1] * 16}"
            with operation("search_memory", kind="retrieve", system="e2e", scope=scope, tracer=tracer) as search:
                search.read("query:1", role="query", content="where does Ana live")
                search.wrote("context:1", role="context", content=content)
                ids.add(self._remember(search.origin))
            with tracer.start_as_current_span("SELECT", attributes={"db.system.name": "sqlite"}) as query:
                ids.add(format_span_id(query.get_span_context().span_id))
            with operation("chat", kind="respond", system="e2e", scope=scope, tracer=tracer) as answer:
                answer.read("context:1", role="context", content=content)
                answer.wrote("answer:1", role="answer", content="In Lisbon.")
                ids.add(self._remember(answer.origin))
        self.traces[trace_id] = ids
        return trace_id

    def _remember(self, origin: str) -> str:
        span_id = origin.partition("-")[2]
        self.memory.add(span_id)
        return span_id
