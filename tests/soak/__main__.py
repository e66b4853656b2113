"""The side branch under load for minutes: sender -> Collector (gateway) -> `memtrace-otel serve`, beside Jaeger.

    python -m tests.soak [--minutes 10] [--rate 5000]

Prints, over time, the memory that Collector and `serve` hold and what waits; at the end what was lost. Exit status 1
when a span is missing or memory is not flat. Takes about 2 GB of disk per million spans, given back at the end.
"""

from __future__ import annotations

import argparse
import sqlite3
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from memtrace_otel.otlp import encode_request
from tests.bench.measure import Measure, at_least, at_most
from tests.bench.measures.receiver import children, cpu_seconds, resident, span
from tests.e2e.backends.jaeger import running_jaeger
from tests.e2e.backends.service import running
from tests.e2e.collector.processes import Collector, Serve
from tests.soak.sender import Sender

SPANS = 500
_MARK = b"memtrace bench"
_SAMPLES = 20
_DRAIN_SECONDS = 600
_GROWTH = 1.15
"""Memory of the last third over that of the second: the first warms up."""


@dataclass(frozen=True, slots=True)
class Sample:
    """Seconds since the start; MiB of both; spans sent and spans that `serve` has acknowledged."""

    seconds: float
    collector: float
    serve: float
    sent: int
    acknowledged: int


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests.soak", description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--minutes", type=float, default=10.0)
    parser.add_argument("--rate", type=int, default=5_000, help="spans per second")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="memtrace-soak.") as folder:
        rows = list(soak(Path(folder), chosen.minutes * 60, chosen.rate))
    for row in rows:
        say(f"{row.name}: {row.ours:.4g} {row.unit} (bar: {row.bar:.4g}, {'holds' if row.holds else 'FALLS SHORT'})")
    return 0 if all(row.holds for row in rows) else 1


def soak(folder: Path, seconds: float, rate: int) -> Iterator[Measure]:
    """Send for so long, wait until everything has arrived, and measure."""
    serve = Serve(folder)
    with running_jaeger(folder) as jaeger, running(serve):
        backend = jaeger.otlp_grpc.removeprefix("http://")
        gateway = Collector(folder, "gateway", "redaction", BACKEND_OTLP=backend, MEMTRACE_SERVE=serve.otlp)
        with running(gateway), Sender(gateway.otlp, bodies(), SPANS, rate) as sender:
            say("seconds  Collector MiB  serve MiB       sent  acknowledged by serve")
            samples = list(watch(gateway, serve, sender, seconds))
            sender.stop()
            drained = drain(serve, sender)
            cores = {
                "Collector": cpu_seconds(gateway.pid) / sender.seconds,
                "serve": sum(map(cpu_seconds, [serve.pid, *children(serve.pid)])) / sender.seconds,
                "Jaeger": cpu_seconds(jaeger.service.pid) / sender.seconds,
            }
            say(f"the last span was in serve after {drained:.0f} s more")
            say(f"cores used: {', '.join(f'{name} {used:.2f}' for name, used in cores.items())}")
            dropped = gateway.metric("memtrace_isolate_dropped_spans")
    with sqlite3.connect(serve.database) as database:
        (kept,) = database.execute("SELECT count(*) FROM span").fetchone()
    minutes = f"side branch, {seconds / 60:.3g} minutes"
    yield at_least(f"{minutes}: rate", sender.sent / sender.seconds, 0.98 * rate, "spans/s")
    yield at_most(f"{minutes}: lost of {sender.sent:,} acknowledged", sender.sent - kept, 0, "spans")
    yield at_most(f"{minutes}: dropped by a full branch", dropped, 0, "spans")
    for name in ("collector", "serve"):
        held = [getattr(sample, name) for sample in samples]
        third = len(held) // 3
        growth = statistics.median(held[-third:]) / statistics.median(held[third : 2 * third])
        yield at_most(f"{minutes}: memory of {name}, last third / second third", growth, _GROWTH, "")
        yield at_most(f"{minutes}: most memory of {name}", max(held), 1024, "MiB")


def bodies() -> Iterator[bytes]:
    """Requests without end, each of other spans: one is encoded, the others have other trace ids."""
    body = encode_request([span(number) for number in range(SPANS)])
    number = 1  # a trace id of zeros is none
    while True:
        yield body.replace(_MARK, number.to_bytes(len(_MARK), "big", signed=False))
        number += 1


def watch(gateway: Collector, serve: Serve, sender: Sender, seconds: float) -> Iterator[Sample]:
    """Print and yield samples until the time is over."""
    pause = seconds / _SAMPLES
    for number in range(1, _SAMPLES + 1):
        time.sleep(max(0.0, number * pause - sender.seconds))
        processes = [serve.pid, *children(serve.pid)]
        sample = Sample(
            sender.seconds,
            resident(gateway.pid) / 2**20,
            sum(map(resident, processes)) / 2**20,
            sender.sent,
            int(serve.acknowledged()),
        )
        say(
            f"{sample.seconds:7.0f} {sample.collector:14.0f} {sample.serve:10.0f} "
            f"{sample.sent:10,} {sample.acknowledged:10,}"
        )
        yield sample


def drain(serve: Serve, sender: Sender) -> float:
    """Wait until `serve` has everything and has decoded it; return the seconds that it took."""
    started = time.monotonic()
    while serve.acknowledged() < sender.sent or serve.waiting():
        if time.monotonic() - started > _DRAIN_SECONDS:
            break
        time.sleep(0.2)
    return time.monotonic() - started


def say(text: str) -> None:
    print(text, flush=True)


if __name__ == "__main__":
    sys.exit(main())
