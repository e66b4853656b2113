"""What one captured operation costs its caller, against a bare SDK span that carries the same attributes and links.

    python tests/bench/capture.py        prints a table and writes build/bench/results.json

Ratios hold across machines, microseconds do not: both sides run interleaved in this process, best of several rounds.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.trace import Link, SpanContext, TraceFlags

from memtrace_otel.capture import operation, scope_id

ROUNDS, CALLS = 15, 1000
SCOPE = scope_id("bench", user="u")
TEXT = "Ana moved to Lisbon in March and works from a co-working space near the river."


class Keep(SpanProcessor):
    """Keeps the last span, so that the bare side can copy exactly what ours carries."""

    last: ReadableSpan

    def on_end(self, span: ReadableSpan) -> None:
        self.last = span


def best(work: Callable[[], None]) -> float:
    """Microseconds of one call of `work`."""
    started = time.perf_counter()
    for _ in range(CALLS):
        work()
    return (time.perf_counter() - started) / CALLS * 1e6


def main() -> int:
    keep = Keep()
    provider = TracerProvider()
    provider.add_span_processor(keep)
    tracer = provider.get_tracer("bench")
    origins: list[str] = []
    for n in range(4):
        with operation("create_memory", kind="create", system="bench", scope=SCOPE, tracer=tracer) as op:
            op.wrote(f"memory:{n}", action="ADD", content=TEXT)
            origins.append(op.origin)

    def ours() -> None:
        with operation("search_memory", kind="retrieve", system="bench", scope=SCOPE, tracer=tracer) as op:
            op.read("query:q", role="query", content=TEXT)
            for n, origin in enumerate(origins):
                op.read(f"memory:{n}", role="hit", content=TEXT, origin=origin, score=0.5)
            op.wrote("context:c", content=TEXT)

    ours()
    attributes = dict(keep.last.attributes or {})
    links = [(bytes.fromhex(origin[:32]), bytes.fromhex(origin[33:])) for origin in origins]
    link_attributes = dict(keep.last.links[0].attributes or {})

    def bare() -> None:
        made = [
            Link(SpanContext(int.from_bytes(t), int.from_bytes(s), True, TraceFlags(1)), link_attributes)
            for t, s in links
        ]
        with tracer.start_as_current_span("search_memory", links=made, attributes=attributes):
            pass

    def off() -> None:
        with operation("search_memory", kind="retrieve", system="bench", tracer=trace.NoOpTracer()):
            pass

    pairs = [(best(ours), best(bare)) for _ in range(ROUNDS)]
    mine, theirs = min(a for a, _ in pairs), min(b for _, b in pairs)
    ratio = sorted(a / b for a, b in pairs)[ROUNDS // 2]
    rows = [
        {"name": "operation, 5 inputs, 4 links", "ours": mine, "peer": theirs, "unit": "us", "ratio": ratio},
        {"name": "operation, no SDK", "ours": min(best(off) for _ in range(ROUNDS)), "peer": None, "unit": "us"},
    ]
    for row in rows:
        print(f"{row['name']:32} ours {row['ours']:8.2f} {row['unit']}", end="")
        print(f"   bare SDK span {row['peer']:8.2f}   ratio {row['ratio']:.2f}" if row["peer"] else "")
    path = Path("build/bench/results.json")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(rows, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
