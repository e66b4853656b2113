"""What `import memtrace_otel` costs a program that does not use it yet."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

from tests.bench.measure import Measure, at_most, progress

FORBIDDEN = ("opentelemetry.sdk", "networkx", "openai")


def seconds(module: str) -> tuple[float, set[str]]:
    """Best time of an import in fresh interpreters, and what it must not have loaded."""
    code = (
        f"import sys, time; started = time.perf_counter(); import {module};"
        f"print(time.perf_counter() - started, *[m for m in {FORBIDDEN} if m in sys.modules])"
    )
    runs = [subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True) for _ in range(9)]
    fields = [run.stdout.split() for run in runs]
    return min(float(field[0]) for field in fields), {name for field in fields for name in field[1:]}


def measure() -> Iterator[Measure]:
    progress("imports")
    (ours, loaded), (capture, loaded_by_capture), (theirs, _) = map(
        seconds, ("memtrace_otel", "memtrace_otel.capture", "smartcomment")
    )
    yield at_most("import memtrace_otel", ours * 1e3, 30.0, "ms", peer=theirs * 1e3)
    yield at_most("import memtrace_otel.capture", capture * 1e3, 100.0, "ms", peer=theirs * 1e3)
    yield at_most(
        "modules of the SDK, networkx or openai that either import loads", len(loaded | loaded_by_capture), 0, "modules"
    )
