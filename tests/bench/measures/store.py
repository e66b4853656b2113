"""The store: how long a trace takes, what the file weighs, and what a million operations cost.

Files are weighed as an idle `serve` leaves them, free pages and log and all.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import re
import sqlite3
import statistics
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory

from opentelemetry.sdk.trace import TracerProvider

from memtrace_otel.capture import operation, read_config, use_config
from memtrace_otel.capture.processor import LosslessSpanProcessor
from memtrace_otel.sources import SqliteStore
from memtrace_otel.sources.exporter import MemtraceSpanExporter
from tests.bench import workload
from tests.bench.measure import Measure, at_most, progress
from tests.bench.peer_file import export, export_buffer

SIZES = (1_000, 10_000, 100_000, 1_000_000)
MESSAGES, TRACES = 2_000, 2_000
MB = 1_000_000


def measure() -> Iterator[Measure]:
    with TemporaryDirectory() as folder:
        yield from growth()
        yield from files(Path(folder))
        yield from buffers(Path(folder))
        yield from waits(Path(folder))
        yield from commands(Path(folder))


def growth() -> Iterator[Measure]:
    """Ingest at every size; the graph of one memory out of the largest file."""
    costs: dict[int, tuple[float, ...]] = {}
    for size in SIZES:
        progress(f"a file of {size:,} operations")
        built = workload.database(size)
        costs[size] = tuple(1e6 * taken / built.operations for taken in (built.cpu_seconds, built.seconds))
    last, *smaller = reversed([costs[size] for size in SIZES])
    for what, bar, cost, least in zip(("CPU time", "time"), (1.5, 2.5), last, map(min, *smaller), strict=True):
        name = f"ingest of {SIZES[-1]:,} operations: {what} of one; ratio to the least in smaller files"
        yield at_most(name, cost, bar, "us", ratio=cost / least)
    progress("the graph of one memory")
    largest = workload.database(SIZES[-1])
    held = float(in_child("resident", str(largest.path)))
    yield at_most("1,000,000 operations ingested: memory of the process", largest.resident_mib, 1024, "MiB")
    yield at_most("1,000,000 operations, graph of one memory: memory of the process", held, 1024, "MiB")
    progress("trace by id")
    yield at_most(f"trace by id, {SIZES[-1]:,} spans in the file, p95", one_trace(largest.path), 5, "ms")


def one_trace(path: Path) -> float:
    """The 95th percentile of milliseconds of one trace after the other out of a file, at random."""
    with sqlite3.connect(path) as connection:
        (last,) = connection.execute("SELECT max(id) FROM span").fetchone()
        rng = random.Random(1)
        query = "SELECT trace_id FROM span WHERE id >= ? LIMIT 1"
        ids = [connection.execute(query, (rng.randrange(last),)).fetchone()[0] for _ in range(TRACES)]
    connection.close()
    times: list[float] = []
    with SqliteStore.open(path, create=False) as store:
        for trace_id in ids:
            started = time.perf_counter()
            spans = store.trace(trace_id)
            times.append((time.perf_counter() - started) * 1000)
            assert spans
    return percentile(times, 95)


def copy_workload(operations: int, path: Path) -> None:
    """Copy the file of so many operations."""
    with closing(sqlite3.connect(workload.database(operations).path)) as source, closing(sqlite3.connect(path)) as copy:
        source.backup(copy)


def files(folder: Path) -> Iterator[Measure]:
    """The file of the memory workload, and the peer's."""
    progress("the peer's file")
    theirs = folder / "peer.json"
    in_child("export", str(SIZES[2]), str(theirs))
    progress("an idle server packs")
    ours = folder / "ours.db"
    copy_workload(SIZES[2], ours)
    weight, peer = packed_by_serve(ours) / MB, theirs.stat().st_size / MB
    name = f"file of {SIZES[2]:,} operations, as kept by an idle serve; peer: export, indented"
    yield at_most(name, weight, 60, "MB", peer=peer)
    yield at_most(f"trace by id from it, {SIZES[2]:,} spans, p95", one_trace(ours), 5, "ms")
    fresh = workload.database(SIZES[2]).path.stat().st_size / MB
    yield at_most(f"file of {SIZES[2]:,} operations, not yet packed", fresh, 0.5, "MB", peer=peer, ratio=fresh / peer)


def buffers(folder: Path) -> Iterator[Measure]:
    """A list to which messages are appended; every version of it is recorded, with the whole of its contents."""
    messages = [message(number) for number in range(MESSAGES)]
    text = sum(len(message.encode()) for message in messages)
    progress("a growing buffer of the peer")
    theirs = folder / "buffer.json"
    export_buffer(messages, theirs)
    progress("a growing buffer of ours")
    ours = folder / "buffer.db"
    whole = dict.fromkeys(("MEMTRACE_PREVIEW_BYTES", "MEMTRACE_SPAN_BYTES"), str(2 * text))
    os.environ.update(whole)
    record_buffer(messages, ours)
    for name in whole:
        del os.environ[name]
    with SqliteStore.open(ours) as store:
        assert store.stats().traces == MESSAGES
    peer = theirs.stat().st_size / text
    progress("an idle server packs")
    name = (
        f"growing buffer of {MESSAGES:,} messages, versions whole in one span, as kept by an idle serve: file over text"
    )
    yield at_most(name, packed_by_serve(ours) / text, 4, "x", peer=peer)
    times: list[float] = []
    with SqliteStore.open(ours) as store:
        for trace_id in store.trace_ids():
            started = time.perf_counter()
            spans = store.trace(trace_id)
            times.append((time.perf_counter() - started) * 1000)
            written = max((variable.content for span in spans for variable in span.outputs), key=len)
            assert written.endswith(spans[0].inputs[0].content)
    yield at_most("a version of it, read, p95", percentile(times, 95), 50, "ms")


def packed_by_serve(path: Path) -> int:
    """Bytes of a file, log and all, when a server on it has nothing left to do."""
    command = [sys.executable, "-m", "memtrace_otel.cli", "serve", "--db", str(path)]
    command += ["--grpc-port", "0", "--http-port", "0"]
    environment = {**os.environ, "MEMTRACE_PACK_SECONDS": "1"}
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)
    assert server.stderr is not None
    try:
        port = int(re.findall(r" on \S+:(\d+)", server.stderr.readline())[1])
        with SqliteStore.open(path, create=False) as store:
            spans = store.stats().spans
        weight, before = weight_of(path), 0
        while packed_spans(port) < spans or weight != before:  # it gives free pages back afterwards
            time.sleep(2)
            weight, before = weight_of(path), weight
        return weight
    finally:
        server.terminate()
        server.wait()


def weight_of(path: Path) -> int:
    """Bytes of a file and its log."""
    return sum(file.stat().st_size for file in path.parent.glob(f"{path.name}*") if not file.name.endswith("-shm"))


def packed_spans(port: int) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    return int(re.findall(r"^memtrace_serve_packed_spans_total (\d+)", text, re.MULTILINE)[0])


def record_buffer(messages: list[str], path: Path) -> None:
    """Record each append as an operation that reads the message and writes the whole list."""
    os.environ["OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"] = "SPAN_ONLY"
    use_config(read_config())
    provider = TracerProvider()
    provider.add_span_processor(LosslessSpanProcessor(MemtraceSpanExporter(path)))
    tracer = provider.get_tracer("bench")
    buffer: list[str] = []
    for number, said in enumerate(messages):
        with operation("append", kind="update", system="bench", scope="b" * 16, tracer=tracer) as append:
            append.read(f"message:{number}", role="message", content=said)
            if buffer:
                append.read("state:memory-unit", role="previous")
            buffer.append(said)
            append.wrote("state:memory-unit", action="UPDATE", content="\n".join(buffer))
    provider.shutdown()


def message(number: int) -> str:
    """About 245 characters, each time others."""
    rng = random.Random(number)
    return f"{number}: " + " ".join(rng.choices(workload.WORDS, k=40))[:240]


def waits(folder: Path) -> Iterator[Measure]:
    """How long another process's write waits while a memory is forgotten and traces are pruned."""
    progress("a writer beside forget and prune")
    path = folder / "waits.db"
    copy_workload(SIZES[1], path)
    with SqliteStore.open(path) as store:
        scopes = [scope.scope for scope in store.scopes()]
        forget = longest_wait(path, lambda: store.forget(scopes[0], compact=False))
        prune = longest_wait(path, lambda: store.prune(scope=scopes[1]))
    yield at_most("a write beside forget of 2,000 spans, without compact: p99", forget, 100, "ms")
    yield at_most("a write beside prune of 2,000 spans: p99", prune, 100, "ms")


def commands(folder: Path) -> Iterator[Measure]:
    """Commands that go through a whole file, each in a process of its own."""
    path = folder / "commands.db"
    copy_workload(SIZES[2], path)
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT trace_id FROM span WHERE kind = 'update' ORDER BY id DESC LIMIT 1"
        (trace_id,) = connection.execute(query).fetchone()
    with SqliteStore.open(path) as store:
        ref = next(variable.ref for span in store.trace(trace_id) if span.kind == "update" for variable in span.outputs)
    for words, seconds, mib in (
        (("attribute", "--all", "--no-annotate"), 120, 300),
        (("graph", "history", ref), 10, 150),
    ):
        progress(" ".join(words[:2]))
        taken, held = run_command(*words, "--db", str(path))
        name = f"{' '.join(words[:2])}, file of {SIZES[2]:,} operations, new process"
        yield at_most(f"{name}: CPU time", taken, seconds, "s")
        yield at_most(f"{name}: memory", held, mib, "MiB")


def run_command(*words: str) -> tuple[float, float]:
    """Seconds of CPU and most MiB of a command; started by a small process, whose memory a child begins with."""
    command = [sys.executable, "-S", "-c", _SPAWN, sys.executable, "-m", "memtrace_otel.cli", *words]
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True).stdout
    status, seconds, kib = json.loads(said)
    assert status in (0, 1), words
    return seconds, kib / 1024


_SPAWN = """
import json, os, sys
nowhere = os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ, file_actions=[nowhere])
_, status, usage = os.wait4(pid, 0)
print(json.dumps([os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime, usage.ru_maxrss]))
"""


def longest_wait(path: Path, work: Callable[[], object]) -> float:
    """The 99th percentile of the milliseconds that a write takes while `work` runs."""
    done = threading.Event()
    times: list[float] = []

    def write() -> None:
        with SqliteStore.open(path) as store:
            while not done.is_set():
                started = time.perf_counter()
                store.add_request(b"")
                times.append((time.perf_counter() - started) * 1000)
                time.sleep(0.002)

    writer = threading.Thread(target=write)
    writer.start()
    work()
    done.set()
    writer.join()
    return percentile(times, 99)


def percentile(times: list[float], percent: int) -> float:
    return statistics.quantiles(times, n=100)[percent - 1]


def in_child(task: str, *arguments: str) -> str:
    """Do one thing in an interpreter of its own, so that its memory is its own; return what it says."""
    command = [sys.executable, "-m", __name__, task, *arguments]
    return subprocess.run(command, cwd=workload.ROOT, stdout=subprocess.PIPE, text=True, check=True).stdout


def main(task: str, *arguments: str) -> None:
    """What a child does."""
    if task == "export":
        export(int(arguments[0]), Path(arguments[1]))
    else:
        print(json.dumps(resident_with_a_graph(Path(arguments[0]))))


def resident_with_a_graph(path: Path) -> float:
    """MiB that this process holds when the graph of one memory is loaded."""
    from memtrace_otel.graph import load_scope

    with SqliteStore.open(path, create=False) as store:
        graph = load_scope(store, store.scopes()[0].scope)
        assert len(graph) > workload.SCOPE_OPERATIONS
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


if __name__ == "__main__":
    main(*sys.argv[1:])
