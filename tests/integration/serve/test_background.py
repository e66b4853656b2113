"""The background processes: output, restarts, damaged files."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from pathlib import Path
from urllib.error import HTTPError

import pytest

from memtrace_otel.otlp import encode_request
from memtrace_otel.otlp.feedback import encode_feedback
from memtrace_otel.otlp.sdk import encode_sdk_spans
from memtrace_otel.serve.child import Child
from memtrace_otel.serve.metrics import Metrics
from memtrace_otel.serve.progress import Process
from memtrace_otel.sources import SqliteStore
from memtrace_otel.testing import contract_span
from tests.conftest import Recording
from tests.integration.serve.conftest import Server, Start
from tests.integration.serve.test_two_servers import fail, story
from tests.leaves import break_leaf
from tests.unit.test_cli import tell

PIPE_BYTES = 1 << 16


def test_metrics_on_the_console_do_not_disturb_the_reports(
    start: Start, recording: Recording, content_on: None
) -> None:
    server = start(OTEL_METRICS_EXPORTER="console", OTEL_METRIC_EXPORT_INTERVAL="2000", MEMTRACE_QUIET_SECONDS="0.2")
    tell(recording)
    assert server.post("/v1/traces", encode_sdk_spans(recording.spans()))[0] == 200
    server.until(lambda: server.metric("verdicts") == 1)
    assert server.process.stderr is not None
    while '"resource_metrics"' not in server.process.stderr.readline():
        pass
    os.kill(server.child(Process.DECODING), signal.SIGKILL)
    server.until(lambda: server.restarts(Process.DECODING) == 1)
    decoded = server.metric("decoded_spans")
    assert server.post("/v1/traces", encode_request([contract_span(999, 999, 999)]))[0] == 200
    server.until(lambda: server.metric("decoded_spans") > decoded)


def test_decoding_goes_on_during_a_long_attribution(start: Start) -> None:
    server = start(MEMTRACE_QUIET_SECONDS="0.2")
    with server.paused(Process.ATTRIBUTING):
        told, asked, failing = story(1)
        for request in (told, asked):
            assert server.post("/v1/traces", request)[0] == 200
        fail(server, failing)
        server.until(lambda: server.metric("decoded_spans") == 5)  # the judgement among them
        assert server.metric("verdicts") == 0
    server.until(lambda: server.metric("verdicts") == 1)


def test_waking_a_hanging_process_does_not_block(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    SqliteStore.open(path).close()
    decoding = Child(Process.DECODING, (str(path),), Metrics())
    pid = decoding._process.pid
    os.kill(pid, signal.SIGSTOP)
    try:
        waking = threading.Thread(target=lambda: [decoding.wake() for _ in range(2 * PIPE_BYTES)], daemon=True)
        waking.start()
        waking.join(30)
        assert not waking.is_alive()
    finally:
        os.kill(pid, signal.SIGCONT)
        decoding.stop()


@pytest.mark.parametrize("body", [b"\xff", b"\x01\x00\x00\x00\x09abc"])
def test_a_damaged_span_does_not_stop_the_background_work(start: Start, tmp_path: Path, body: bytes) -> None:
    """One that is no span, one whose dictionary is gone."""
    database = tmp_path / "damaged.db"
    told, asked, failing = story(1)
    with SqliteStore.open(database) as store:
        store.add_request(told)
        store.add_request(asked)
        store.add_request(encode_feedback(failing, label="fail"))
        store.decode()
    with closing(sqlite3.connect(database)) as connection, connection:
        assert connection.execute("UPDATE span SET body = ? WHERE kind = 'respond'", (body,)).rowcount == 1
    server = start(database=database, MEMTRACE_QUIET_SECONDS="0.2")
    told, asked, failing = story(2)
    for request in (told, asked):
        assert server.post("/v1/traces", request)[0] == 200
    fail(server, failing)
    server.until(lambda: server.metric("verdicts") == 1)
    assert sum(server.restarts(process) for process in Process) == 0


def test_the_decoding_process_imports_neither_endpoints_nor_graphs() -> None:
    """Each would hold 10 MiB more, also in a server without requests."""
    program = "import sys, memtrace_otel.serve.decoding; print(*sys.modules)"
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout.split()
    assert not {"grpc", "uvicorn", "asyncio", "networkx"} & {*found}


def test_a_damaged_page_makes_the_background_work_wait(start: Start, tmp_path: Path) -> None:
    with SqliteStore.open(tmp_path / "spans.db") as store:
        store.add_request(encode_request([contract_span(n, n, n) for n in range(1, 900)]))
        store.decode()
    break_leaf(tmp_path / "spans.db", "span", -1)
    server = start()
    assert server.post("/v1/traces", encode_request([contract_span(999, 999, 999)]))[0] == 200
    server.until(lambda: health(server) == (503, "damaged"))
    assert not any(server.restarts(process) for process in Process)
    server.terminate()
    assert "background work waits" in server.errors()


def test_health_reports_a_damaged_index(start: Start, tmp_path: Path) -> None:
    with SqliteStore.open(tmp_path / "spans.db") as store:
        store.add_request(encode_request([contract_span(n, n, n) for n in range(1, 900)]))
        store.decode()
    break_leaf(tmp_path / "spans.db", "span_start", -1)
    server = start()
    assert health(server) == (200, "ok")
    assert server.post("/v1/traces", encode_request([contract_span(999, 999, 999)]))[0] == 200
    server.until(lambda: health(server) == (503, "damaged"))


def health(server: Server) -> tuple[int, str]:
    try:
        return 200, json.loads(server.get("/health"))["status"]
    except HTTPError as unwell:
        return unwell.code, json.loads(unwell.read())["status"]
