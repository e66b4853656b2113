"""The observed program of the processor tests: makes spans with an exporter that behaves as told, then ends as told.

    python program.py '{"exporter": "slow", "file": "sent.txt", "spans": 20000, "end": "exit", ...}'

Prints one JSON object with what it saw before it ended.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Sequence
from itertools import count
from pathlib import Path
from typing import Any, TextIO

from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult

from memtrace_otel import semconv
from memtrace_otel.capture import drops
from memtrace_otel.capture.delivery import LosslessSpanProcessor
from memtrace_otel.sources.exporter import MemtraceSpanExporter

ATTRIBUTES = {f"memtrace.test.{n}": ["memory:abc", "memory:def"] if n % 2 else f"some value {n}" for n in range(11)}


class Exporter(SpanExporter):
    """Appends `<trace id>-<span id> <name> <process>` of what it takes to `path`; `name=<n>` tells of n lost spans."""

    def __init__(self, path: str, behaviour: str) -> None:
        self.path = Path(path)
        self._behaviour = behaviour

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        if self._behaviour == "slow":
            time.sleep(0.05)
        if self._behaviour == "hanging":
            threading.Event().wait()
        if self._behaviour == "dead":
            return SpanExportResult.FAILURE
        with self.path.open("a") as file:
            for span in spans:
                lost = (span.attributes or {}).get(semconv.LOST)
                name = f"{span.name}={lost}" if lost else span.name
                file.write(f"{span.context.trace_id:032x}-{span.context.span_id:016x} {name} {os.getpid()}\n")
        return SpanExportResult.SUCCESS


def exporter(kind: str, file: str) -> SpanExporter:
    if kind == "memtrace":
        return MemtraceSpanExporter(path=file)
    return OTLPSpanExporter(endpoint=file) if kind == "otlp" else Exporter(file, kind)


def resident_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 2**20


class Program:
    def __init__(self, options: dict[str, Any]) -> None:
        self.waits: list[float] = []
        self.processor = LosslessSpanProcessor(
            exporter(options["exporter"], options["file"]), **options.get("processor", {})
        )
        provider = TracerProvider(resource=Resource({"service.name": "program"}))
        provider.add_span_processor(self.processor)
        trace.set_tracer_provider(provider)
        self.tracer = provider.get_tracer("program")

    def make(self, amount: int, name: str = "span") -> None:
        for n in range(amount):
            span = self.tracer.start_span(f"{name}-{n}", attributes=ATTRIBUTES)
            started = time.perf_counter()
            span.end()
            self.waits.append(time.perf_counter() - started)

    def make_for_ever(self, made: TextIO) -> None:
        """End spans until the process does, and write down each that has ended."""
        for n in count():
            self.tracer.start_span(f"{Path(made.name).stem}-{n}").end()
            print(f"{Path(made.name).stem}-{n}", file=made, flush=True)
            time.sleep(0.002)

    async def make_on_a_loop(self, amount: int) -> None:
        self.make(amount)


def main(options: dict[str, Any]) -> None:
    program = Program(options)
    amount, end = options.get("spans", 0), options.get("end", "exit")
    process, before = os.getpid(), resident_mib()
    started = time.perf_counter()
    if threads := options.get("threads", 0):
        workers = [threading.Thread(target=program.make, args=(amount, f"thread{n}")) for n in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    elif end == "endless":  # until killed: says when each span ended
        for n in range(1_000_000):
            program.tracer.start_span(f"span-{n}", attributes=ATTRIBUTES).end()
            print(n, time.time(), flush=True)
            time.sleep(0.002)
    elif options.get("loop"):
        asyncio.run(program.make_on_a_loop(amount))
    else:
        program.make(amount)
    if end == "fork":
        child = os.fork()
        program.make(amount, "child" if child == 0 else "parent")
        if child == 0:
            return
        os.waitpid(child, 0)
    seen = {
        "seconds": time.perf_counter() - started,
        "worst": sorted(program.waits)[-3:],
        "grown": resident_mib() - before,
        "waiting": program.processor.waiting,
        "spooled": program.processor.spooled_bytes,
        "drops": dict(drops),
    }
    if end == "flush":
        seen["flushed"] = program.processor.force_flush(20_000)
    if end == "flush in vain":
        seen["flushed"] = program.processor.force_flush(100)
    print(json.dumps(seen), flush=True)
    if end == "flush in vain":
        os._exit(0)
    if end == "first process":  # of a container: the system does not end it by SIGTERM
        os.getpid = lambda: 1
        os.kill(process, signal.SIGTERM)
        program.make(10, "after")
        program.processor.force_flush()
    if end == "sigterm":
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    if end == "sigterm amid exit":  # from a supervisor that does not wait
        supervisor = threading.Timer(0.2, os.kill, (os.getpid(), signal.SIGTERM))
        supervisor.daemon = True  # else the exit waits for it
        supervisor.start()
    if end == "sigterm amid threads":
        made = [open(f"{options['file']}.{n}.made", "w") for n in range(4)]  # noqa: SIM115  # until the process ends
        for file in made:
            threading.Thread(target=program.make_for_ever, args=(file,), daemon=True).start()
        time.sleep(1)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(60)
    if end == "sigkill":
        time.sleep(options["after"])
        os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
