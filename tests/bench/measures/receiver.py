"""`serve`: spans acknowledged and spans decoded per second, and what it costs when nobody sends."""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from tempfile import TemporaryDirectory

from memtrace_otel.model import Link, OperationSpan, Variable
from memtrace_otel.otlp import encode_request
from memtrace_otel.sources import SqliteStore
from tests.bench.measure import Measure, at_least, at_most, progress

SPANS, BODIES, CONNECTIONS = 512, 320, 4
"""More bodies than are decoded while it is measured."""
BURST, LONGER = (0.0, 5.0), (12.0, 17.0)
"""Seconds: in the first ten, decoding makes pauses."""


def measure() -> Iterator[Measure]:
    bodies = requests()
    with TemporaryDirectory() as folder:
        progress("decode before the acknowledgement")
        baseline = decoded_first(Path(folder) / "baseline.db", bodies[:20])
        progress("decode")
        decoded = decoding(Path(folder) / "decode.db", bodies[:160])
        progress("serve: idle, then four connections")
        idle_mib, idle_cpu, burst, longer, p99 = serving(Path(folder) / "serve.db", bodies)
    name = f"acknowledged and on disk, {SPANS}-span bodies, {CONNECTIONS} connections"
    yield at_least(f"{name}, a burst of 5 s; peer: decoded before the answer", burst, 50_000, "spans/s", peer=baseline)
    yield at_least(f"{name}, from the 12th second on", longer, 50_000, "spans/s", peer=baseline)
    yield at_most("acknowledgement beside the decoder, p99", p99, 500, "ms")
    yield at_least("decoded and indexed by one process", decoded, 12_000, "spans/s")
    yield at_most("idle server, its three processes", idle_mib, 150, "MiB")
    yield at_most("idle server, its three processes: share of a core", idle_cpu, 1.0, "%")


def requests() -> list[bytes]:
    """Bodies of different spans, as senders would make them: the time goes on, trace ids are random."""
    return [encode_request([span(body * SPANS + number) for number in range(SPANS)]) for body in range(BODIES)]


def span(number: int) -> OperationSpan:
    """A search, with what our instrumentors put on it."""
    trace_id = hashlib.blake2b(str(number // 8).encode(), digest_size=16).hexdigest()
    span_id = f"{number + 1:016x}"
    return OperationSpan(
        trace_id=trace_id,
        span_id=span_id,
        name="search_memory",
        kind="retrieve",
        system="mem0",
        scope=f"{number % 50 + 1:016x}",
        seq=number,
        start=1_700_000_000_000_000_000 + number * 1000,
        end=1_700_000_000_000_001_000 + number * 1000,
        status="ok",
        inputs=(
            Variable("query:1", "query", digest="d" * 16, content="where does Ana live"),
            Variable(f"memory:{number}", "hit", origin=f"{trace_id}-{span_id}", digest="e" * 16, score=0.8),
        ),
        outputs=(Variable(f"context:{number}", "context", digest="f" * 16, action="DERIVE", size=30),),
        attributes={"gen_ai.operation.name": "search_memory", "gen_ai.memory.store.id": "mem0"},
        resource={"service.name": "shop", "service.version": "1"},
        instrumentation_scope="memtrace_otel.bench",
        links=(Link(trace_id, span_id, {"memtrace.link.type": "retrieved"}),),
    )


def decoded_first(path: Path, bodies: Sequence[bytes]) -> float:
    """Spans per second of a receiver that answers when a body is decoded."""
    with SqliteStore.open(path) as store:
        started = time.perf_counter()
        for body in bodies:
            store.add_request(body)
            store.decode()
        return len(bodies) * SPANS / (time.perf_counter() - started)


def decoding(path: Path, bodies: Sequence[bytes]) -> float:
    """Spans per second of a process that decodes what waits."""
    with SqliteStore.open(path) as store:
        store.add_requests(bodies)
        started = time.perf_counter()
        new = store.decode()
        seconds = time.perf_counter() - started
    assert new == len(bodies) * SPANS
    return new / seconds


def serving(path: Path, bodies: Sequence[bytes]) -> tuple[float, float, float, float, float]:
    """MiB and percent of a core when idle; spans acknowledged per second, in a burst and after it, and the 99th
    percentile of the answer, ms."""
    command = [sys.executable, "-m", "memtrace_otel.cli", "serve", "--db", str(path)]
    command += ["--grpc-port", "0", "--http-port", "0"]
    environ = {**os.environ, "MEMTRACE_INBOX_BYTES": str(4 << 30)}
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environ)
    assert server.stderr is not None
    try:
        port = int(re.findall(r" on \S+:(\d+)", server.stderr.readline())[1])
        time.sleep(3)
        processes = [server.pid, *children(server.pid)]
        before = sum(map(cpu_seconds, processes))
        time.sleep(10)
        idle = (sum(map(cpu_seconds, processes)) - before) * 10
        held = sum(map(resident, processes)) / (1 << 20)
        answers = load(port, bodies)
    finally:
        server.terminate()
        server.wait()
    rates = [SPANS * sum(first <= at < last for at, _ in answers) / (last - first) for first, last in (BURST, LONGER)]
    times = sorted(taken for _, taken in answers)
    return held, idle, rates[0], rates[1], times[int(len(times) * 0.99)] * 1000


def load(port: int, bodies: Sequence[bytes]) -> list[tuple[float, float]]:
    """Send on all connections, as fast as the answers come; return when each came and what it took, seconds."""
    answers: list[tuple[float, float]] = []
    begin = time.perf_counter()

    def send(first: int) -> None:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        number = first
        while (started := time.perf_counter()) < begin + LONGER[1]:
            headers = {"content-type": "application/x-protobuf"}
            connection.request("POST", "/v1/traces", bodies[number % len(bodies)], headers)
            reply = connection.getresponse()
            reply.read()
            assert reply.status == 200
            ended = time.perf_counter()
            answers.append((ended - begin, ended - started))
            number += CONNECTIONS
        connection.close()

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        for sent in [pool.submit(send, first) for first in range(CONNECTIONS)]:
            sent.result()
    return answers


def children(pid: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True, check=True)
    return [int(word) for word in found.stdout.split()]


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def resident(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
