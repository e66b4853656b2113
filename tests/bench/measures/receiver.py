"""`serve`: spans acknowledged per second beside the decoder, against a receiver that decodes before its answer."""

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
from tests.bench.measure import Measure, at_least, progress

SPANS, BODIES, CONNECTIONS = 512, 320, 4
"""More bodies than the server decodes meanwhile."""
SECONDS = 8.0


def measure() -> Iterator[Measure]:
    bodies = requests()
    with TemporaryDirectory() as folder:
        progress("decode before the acknowledgement")
        baseline = decoded_first(Path(folder) / "baseline.db", bodies[:20])
        progress("serve: four connections")
        acknowledged = serving(Path(folder) / "serve.db", bodies)
    name = f"serve: spans acknowledged on disk beside the decoder, {CONNECTIONS} connections, over decoding first"
    yield at_least(name, acknowledged, baseline, 3, "spans/s")


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


def serving(path: Path, bodies: Sequence[bytes]) -> float:
    """Return the spans that a server acknowledges per second."""
    command = [sys.executable, "-m", "memtrace_otel.cli", "serve", "--db", str(path)]
    command += ["--grpc-port", "0", "--http-port", "0"]
    environ = {**os.environ, "MEMTRACE_INBOX_BYTES": str(4 << 30)}
    server = subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environ)
    assert server.stderr is not None
    try:
        port = int(re.findall(r" on \S+:(\d+)", server.stderr.readline())[1])
        return load(port, bodies) * SPANS / SECONDS
    finally:
        server.terminate()
        server.wait()


def load(port: int, bodies: Sequence[bytes]) -> int:
    """Send on all connections as fast as the answers come; return the number of acknowledged bodies."""
    begin = time.perf_counter()

    def send(first: int) -> int:
        connection = http.client.HTTPConnection("127.0.0.1", port)
        number, acknowledged = first, 0
        while time.perf_counter() < begin + SECONDS:
            headers = {"content-type": "application/x-protobuf"}
            connection.request("POST", "/v1/traces", bodies[number % len(bodies)], headers)
            reply = connection.getresponse()
            reply.read()
            assert reply.status == 200
            acknowledged += 1
            number += CONNECTIONS
        connection.close()
        return acknowledged

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        return sum(pool.map(send, range(CONNECTIONS)))
