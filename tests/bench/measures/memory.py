"""Memory held after 100,000 operations with new values."""

from __future__ import annotations

import gc
import resource
from collections.abc import Iterator
from pathlib import Path

from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from memtrace_otel.capture import operation
from memtrace_otel.capture.delivery import LosslessSpanProcessor
from tests.bench import peer
from tests.bench.measure import Measure, at_most, progress

OPERATIONS = 100_000


class Nowhere(SpanExporter):
    """Takes everything and keeps nothing."""

    def export(self, spans: object) -> SpanExportResult:
        return SpanExportResult.SUCCESS

    def shutdown(self) -> None: ...


def held() -> float:
    """Resident memory in MiB, what lies in cycles excluded."""
    gc.collect()
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 2**20


def measure() -> Iterator[Measure]:
    progress(f"{OPERATIONS:,} operations of ours")
    provider = TracerProvider()
    provider.add_span_processor(LosslessSpanProcessor(Nowhere()))
    tracer = provider.get_tracer("bench")

    def run(first: int, last: int) -> None:
        for n in range(first, last):
            with operation("update_memory", kind="update", system="bench", tracer=tracer) as op:
                op.read(f"message:{n}", role="message", content=f"message {n}")
                op.wrote(f"memory:{n}", action="ADD", content=f"memory {n}")

    run(0, 100)
    provider.force_flush()
    start = held()
    run(100, OPERATIONS)
    provider.force_flush()
    mine = held() - start
    progress(f"{OPERATIONS:,} operations of the peer")
    traced = peer.comment_fn(op_name="bench.f")(lambda n: n + 1)
    start = held()
    with peer.recording():
        for n in range(OPERATIONS):
            traced(n * 2)
        theirs = held() - start
    yield at_most(f"memory held by {OPERATIONS:,} operations, over the peer", mine, theirs, 0.1, "MiB")
