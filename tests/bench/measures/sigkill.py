"""How much recorded work is gone after SIGKILL, in seconds before the kill."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

from memtrace_otel.sources import SqliteStore
from tests.bench.measure import Measure, at_most, progress

SECONDS = 5.0

OURS = """
import itertools, sys, time
from opentelemetry.sdk.trace import TracerProvider
from memtrace_otel.capture import operation
from memtrace_otel.capture.processor import LosslessSpanProcessor
from memtrace_otel.sources.exporter import MemtraceSpanExporter

provider = TracerProvider()
provider.add_span_processor(LosslessSpanProcessor(MemtraceSpanExporter(sys.argv[1]), spool_dir=sys.argv[1] + ".spool"))
tracer = provider.get_tracer("bench")
for n in itertools.count():
    with operation("create_memory", kind="create", system="bench", tracer=tracer) as op:
        op.wrote(f"memory:{n}", action="ADD", content=f"memory {n}")
    print(f"memory:{n}", time.time(), flush=True)
    time.sleep(0.001)
"""

PEER = """
import itertools, sys, time
from smartcomment import comment_fn, comment_graph, comment_session
traced = comment_fn(op_name="work")(lambda n: n + 1)
with comment_graph(storage_path=sys.argv[1]), comment_session():
    for n in itertools.count():
        traced(n)
        print(n, time.time(), flush=True)
        time.sleep(0.001)
"""


def killed(program: str, path: Path) -> tuple[list[tuple[str, float]], float]:
    """Run `program` for a while and kill it; return what it did and when, and the time of the kill."""
    log = path.with_suffix(".log")
    with log.open("w") as output:
        running = subprocess.Popen([sys.executable, "-c", program, str(path)], stdout=output)
        while not log.stat().st_size:  # it has started
            time.sleep(0.05)
        time.sleep(SECONDS)
        at = time.time()
        running.send_signal(signal.SIGKILL)
        running.wait()
    done = [line.split() for line in log.read_text().splitlines(keepends=True) if line.endswith("\n")]
    return [(ref, float(when)) for ref, when in done], at


def measure() -> Iterator[Measure]:
    progress(f"SIGKILL after {SECONDS:g} seconds of operations")
    with TemporaryDirectory() as folder:
        path = Path(folder) / "killed.db"
        done, at = killed(OURS, path)
        with SqliteStore.open(path) as store:
            store.decode()
            kept = {variable.ref for span in store.spans() for variable in span.outputs}
        lost = [when for ref, when in done if ref not in kept]
        theirs, their_end = killed(PEER, Path(folder) / "peer")
        left = [entry for entry in Path(folder).glob("peer*") if entry.suffix != ".log" and entry.is_file()]
    yield at_most(
        "after SIGKILL: seconds of work lost before the kill",
        at - min(lost, default=at),
        1.0,
        "s",
        peer=None if left else their_end - theirs[0][1],
    )
