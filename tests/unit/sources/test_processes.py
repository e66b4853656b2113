"""Several real processes on one database: writers, readers, decoders, and one that is killed."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from memtrace_otel.otlp import encode_request
from memtrace_otel.sources import SqliteStore
from memtrace_otel.testing import contract_span

WRITER = """
import itertools, pathlib, sys
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from memtrace_otel.sources.exporter import MemtraceSpanExporter

path, name, stop = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
exporter = MemtraceSpanExporter(path)
provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(exporter, max_export_batch_size=8, schedule_delay_millis=5))
tracer = provider.get_tracer("writer")
for number in itertools.count(1):
    tracer.start_span(f"{name}-{number}").end()
    if number % 100 == 0:
        provider.force_flush()
        if stop.exists():
            break
provider.shutdown()
print(number, exporter.lost_spans)
"""

KILLED = """
import itertools, sys
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from memtrace_otel.sources.exporter import MemtraceSpanExporter

provider = TracerProvider()
provider.add_span_processor(BatchSpanProcessor(MemtraceSpanExporter(sys.argv[1]), schedule_delay_millis=1))
tracer = provider.get_tracer("killed")
for number in itertools.count():
    tracer.start_span(f"span-{number}", attributes={"filler": "x" * 2000}).end()
    if number % 50 == 49:
        provider.force_flush()
        print(number + 1, flush=True)
"""

DECODER = """
import sys
from memtrace_otel.sources import SqliteStore
with SqliteStore.open(sys.argv[1], create=False) as store:
    sys.stdin.readline()
    print(store.decode())
"""

APPLICATION = """
from opentelemetry import trace
tracer = trace.get_tracer("application")
for number in range(20):
    with tracer.start_as_current_span(f"span-{number}"):
        pass
"""


def python(script: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-c", script, *map(str, arguments)]
    return subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def test_two_processes_write_one_file_while_a_third_reads(tmp_path: Path) -> None:
    path, stop = tmp_path / "a.db", tmp_path / "stop"
    writers = {name: python(WRITER, path, name, stop) for name in ("a", "b")}
    seen = [0]
    deadline = time.monotonic() + 60
    while len(set(seen)) < 5 and time.monotonic() < deadline:
        if path.exists() and path.stat().st_size:
            with SqliteStore.open(path) as store:
                seen.append(store.stats().spans)
        time.sleep(0.01)
    stop.touch()
    expected: list[str] = []
    for name, writer in writers.items():
        said, errors = writer.communicate()
        assert (writer.returncode, errors) == (0, "")
        count, lost = map(int, said.split())
        assert lost == 0
        expected += [f"{name}-{number}" for number in range(1, count + 1)]
    assert len(set(seen)) >= 5
    assert seen == sorted(seen)
    with SqliteStore.open(path) as store:
        assert sorted(span.name for span in store.spans()) == sorted(expected)
        assert store.quarantined() == []


def test_kill_9_loses_no_flushed_span(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    process = python(KILLED, path)
    assert process.stdout is not None
    flushed = 0
    for _ in range(6):
        flushed = int(process.stdout.readline())
    time.sleep(0.02)  # so that the kill meets it writing
    os.kill(process.pid, signal.SIGKILL)
    rest, _ = process.communicate()
    flushed = int((rest.split() or [flushed])[-1])
    assert process.returncode == -signal.SIGKILL
    assert flushed >= 300
    with SqliteStore.open(path, create=False) as store:
        names = {span.name for span in store.spans()}
        assert names >= {f"span-{number}" for number in range(flushed)}
        assert store.quarantined() == []
    with sqlite3.connect(path) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    connection.close()


def test_two_decoders_decode_each_request_once(tmp_path: Path) -> None:
    path, count = tmp_path / "a.db", 3000
    with SqliteStore.open(path) as store:
        store.add_requests(encode_request([contract_span(n + 1, n + 1)]) for n in range(count))
        store.add_request(b"\xffunreadable")
    decoders = [python(DECODER, path) for _ in range(2)]
    for decoder in decoders:
        assert decoder.stdin is not None
        decoder.stdin.write("go\n")
        decoder.stdin.flush()
    outcomes = [(*decoder.communicate(), decoder.returncode) for decoder in decoders]
    assert [(errors, status) for _, errors, status in outcomes] == [("", 0), ("", 0)]
    assert sum(int(said) for said, _, _ in outcomes) == count
    with SqliteStore.open(path) as store:
        stats = store.stats()
    assert (stats.spans, stats.waiting, stats.quarantined) == (count, 0, 1)


@pytest.mark.parametrize("exporters", ["memtrace", "otlp,memtrace"])
def test_a_program_under_opentelemetry_instrument_writes_all_spans_at_exit(tmp_path: Path, exporters: str) -> None:
    (tmp_path / "application.py").write_text(APPLICATION)
    environment = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "OTEL_TRACES_EXPORTER": exporters,
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_LOGS_EXPORTER": "none",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "http://127.0.0.1:9",  # nobody listens: the other exporter fails
        "OTEL_EXPORTER_OTLP_TIMEOUT": "1",
        "MEMTRACE_DB": "traces.db",
    }
    command = ["opentelemetry-instrument", sys.executable, "application.py"]
    ran = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr
    with SqliteStore.open(tmp_path / "traces.db", create=False) as store:
        assert sorted(span.name for span in store.spans()) == sorted(f"span-{number}" for number in range(20))
