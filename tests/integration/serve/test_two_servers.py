"""Two servers on one file, and a third that their verdicts go to: each verdict is concluded, counted and sent once."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from memtrace_otel.model import OperationSpan, Variable
from memtrace_otel.otlp import encode_request
from memtrace_otel.semconv import ATTRIBUTION_SCOPE
from memtrace_otel.sources import SqliteStore
from tests.integration.serve.conftest import Server, Start
from tests.integration.serve.test_shared_disk import children

STORIES = range(1, 11)
QUIET = {"MEMTRACE_QUIET_SECONDS": "1"}
SAID, KEPT = "my car is blue", "my car is nice"


def operation(trace: int, number: int, start: int, kind: str, *variables: tuple[Variable, ...]) -> OperationSpan:
    inputs, outputs = variables
    return OperationSpan(
        f"{trace:032x}", f"{number:016x}", name=kind, kind=kind, system="mine", scope=f"{trace % 1000:016x}",
        start=start, end=start + 1000, inputs=inputs, outputs=outputs, resource={"service.name": "cars"},
    )  # fmt: skip


def story(n: int) -> tuple[bytes, bytes, str]:
    """What was told, what was asked later, and the trace of that."""
    now = time.time_ns() - 10**10
    told, asked = 1000 + n, 2000 + n
    message, fact = Variable("message:m", "message", content=SAID), Variable("fact:f", content=KEPT, action="DERIVE")
    extract = operation(told, 1, now, "extract", (message,), (fact,))
    memory = Variable("memory:z", content=KEPT, action="ADD")
    create = operation(told, 2, now + 10**4, "create", (Variable("fact:f", origin=extract.origin),), (memory,))
    query = Variable("query:q", "query", content="what colour is my car")
    hit = Variable("memory:z", "hit", origin=create.origin)
    found = operation(asked, 3, now + 10**5, "retrieve", (query, hit), (Variable("context:c", content=KEPT),))
    context = Variable("context:c", "context", origin=found.origin)
    answer = operation(asked, 4, now + 10**6, "respond", (context,), (Variable("answer:a", "answer", content="red"),))
    return encode_request([extract, create]), encode_request([found, answer]), answer.trace_id


def fail(server: Server, trace_id: str) -> None:
    document = json.dumps({"trace_id": trace_id, "label": "fail", "expected": "blue"}).encode()
    assert server.post("/v1/feedback", document, content_type="application/json")[0] == 200


@pytest.fixture
def backend(start: Start, tmp_path: Path) -> Server:
    return start(database=tmp_path / "backend.db")


def sending_to(backend: Server) -> dict[str, str]:
    return {"OTEL_EXPORTER_OTLP_ENDPOINT": backend.http, "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf"}


def attributions(database: Path) -> tuple[int, set[str]]:
    """The number of answers with a verdict, and the ids of all attributions."""
    with SqliteStore.open(database, create=False) as store:
        ids = {str(span.attributes.get("memtrace.attribution.id", "")) for span in store.spans()} - {""}
        return len(store.verdicts()), ids


def in_all(counter: str, *servers: Server) -> float:
    lines = [line.split() for server in servers for line in server.get("/metrics").splitlines()]
    return sum(float(words[1]) for words in lines if words[0].startswith(f"memtrace_serve_{counter}_total"))


def each_was_sent_once(backend: Server, attributed: int) -> None:
    """Per attribution at least a marker and a root; the event is taken and not kept."""
    received = backend.metric("acknowledged_spans")
    assert received >= 2 * attributed
    assert received == len(backend.span_ids())


def test_each_verdict_is_counted_and_sent_once(start: Start, backend: Server, tmp_path: Path) -> None:
    first, second = (start(database=tmp_path / "shared.db", **QUIET, **sending_to(backend)) for _ in range(2))
    stories = [story(n) for n in STORIES]

    def counted() -> float:
        return first.metric("verdicts") + second.metric("verdicts")

    for _, asked, trace_id in stories:
        assert first.post("/v1/traces", asked)[0] == 200
        fail(second, trace_id)
    first.until(lambda: counted() >= len(stories))
    for n, (told, _, _) in enumerate(stories):
        assert (first, second)[n % 2].post("/v1/traces", told)[0] == 200
    first.until(lambda: counted() >= 2 * len(stories))
    time.sleep(4)  # both have looked at everything again
    answers, ids = attributions(tmp_path / "shared.db")
    assert (answers, len(ids), counted()) == (len(stories), 2 * len(stories), 2 * len(stories))
    each_was_sent_once(backend, len(ids))
    with SqliteStore.open(tmp_path / "shared.db", create=False) as store:
        told = [span for span in store.spans() if span.instrumentation_scope != ATTRIBUTION_SCOPE]
        kept = store.stats().spans
    counters = ("operations", "answers", "evaluations", "decoded_spans")
    expected = (len(told), len(stories), len(stories), kept)
    assert tuple(in_all(counter, first, second) for counter in counters) == expected
    first.until(lambda: not list(tmp_path.glob("*-turn")))  # the third has turns too, at what it was sent


def test_the_command_beside_a_server_sends_nothing_again(start: Start, backend: Server, tmp_path: Path) -> None:
    server = start(database=tmp_path / "shared.db", **QUIET, **sending_to(backend))
    for told, asked, trace_id in map(story, STORIES):
        assert server.post("/v1/traces", told)[0] == 200
        assert server.post("/v1/traces", asked)[0] == 200
        fail(server, trace_id)
    command = [sys.executable, "-m", "memtrace_otel.cli", "attribute", "--all", "--db", str(server.database)]
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "MEMTRACE_"))}
    env = {**clean, **sending_to(backend)}
    deadline = time.monotonic() + 6
    while time.monotonic() < deadline:
        assert subprocess.run(command, env=env, capture_output=True).returncode == 0
    answers, ids = attributions(server.database)
    assert (answers, len(ids)) == (len(STORIES), len(STORIES))
    each_was_sent_once(backend, len(ids))


def test_a_server_killed_while_it_sends_releases_the_lock_for_the_other(
    start: Start, backend: Server, tmp_path: Path
) -> None:
    """The receiver of the first server takes the request and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        silent.settimeout(20)
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        stuck = start(
            database=tmp_path / "shared.db", **QUIET, **{**sending_to(backend), "OTEL_EXPORTER_OTLP_ENDPOINT": address},
            OTEL_EXPORTER_OTLP_TIMEOUT="60",
        )  # fmt: skip
        _, asked, trace_id = story(1)
        stuck.post("/v1/traces", asked)
        fail(stuck, trace_id)
        connection, _ = silent.accept()
        other = start(database=tmp_path / "shared.db", **QUIET, **sending_to(backend))
        time.sleep(3)
        assert backend.metric("acknowledged_spans") == 0
        assert other.post("/v1/traces", story(2)[1])[0] == 200  # it works on meanwhile
        other.until(lambda: other.metric("inbox_bytes") == 0)
        for pid in (stuck.process.pid, *children(stuck.process.pid)):
            os.kill(pid, signal.SIGKILL)
        other.until(lambda: backend.metric("acknowledged_spans") >= 2)
        connection.close()
    each_was_sent_once(backend, 1)
