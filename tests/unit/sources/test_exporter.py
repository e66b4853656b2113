"""`OTEL_TRACES_EXPORTER=memtrace`, in one process: what is written, what a failure does, forks."""

from __future__ import annotations

import logging
import os
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from pathlib import Path

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from memtrace_otel.sources import SqliteStore
from memtrace_otel.sources.database import BUSY_SECONDS
from memtrace_otel.sources.exporter import MemtraceSpanExporter
from memtrace_otel.sources.ingest import add_requests


def finished_spans(*names: str) -> tuple[ReadableSpan, ...]:
    memory = InMemorySpanExporter()
    provider = TracerProvider(resource=Resource({"service.name": "exporting"}))
    provider.add_span_processor(SimpleSpanProcessor(memory))
    for name in names:
        with provider.get_tracer("tests").start_as_current_span(name) as span:
            span.set_attribute("memtrace.op.kind", "create")
            span.set_attribute("memtrace.outputs", ["memory:1"])
    return memory.get_finished_spans()


def stored_names(path: Path) -> list[str]:
    with SqliteStore.open(path, create=False) as store:
        return [span.name for span in store.spans()]


def test_spans_are_on_disk_when_export_returns(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    exporter = MemtraceSpanExporter(path=path)
    assert not path.exists()
    assert exporter.export(finished_spans("one", "two")) is SpanExportResult.SUCCESS
    with SqliteStore.open(path, create=False) as store:
        one, two = store.spans()
    assert (one.name, one.kind, one.service, one.instrumentation_scope) == ("one", "create", "exporting", "tests")
    assert [variable.ref for variable in two.outputs] == ["memory:1"]


def test_without_arguments_the_setting_names_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMTRACE_DB", "traces.db")
    monkeypatch.chdir(tmp_path)
    exporter = MemtraceSpanExporter()
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    exporter.export(finished_spans("one"))
    assert stored_names(tmp_path / "traces.db") == ["one"]


def test_lost_spans_are_counted_and_the_first_failure_is_logged_without_contents(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    exporter = MemtraceSpanExporter(path=tmp_path)
    with caplog.at_level(logging.DEBUG):
        assert exporter.export(finished_spans("my-secret")) is SpanExportResult.FAILURE
        assert exporter.export(finished_spans("my-secret", "b")) is SpanExportResult.FAILURE
    assert exporter.lost_spans == 3
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("memtrace_otel")]
    assert len(ours) == 1
    assert str(tmp_path) in ours[0]
    assert "my-secret" not in ours[0]


def test_export_works_again_when_the_file_can_be_written(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    path.mkdir()
    exporter = MemtraceSpanExporter(path=path)
    assert exporter.export(finished_spans("lost")) is SpanExportResult.FAILURE
    path.rmdir()
    assert exporter.export(finished_spans("kept")) is SpanExportResult.SUCCESS
    assert stored_names(path) == ["kept"]


def test_spans_that_cannot_be_encoded_are_a_failure_not_an_error(tmp_path: Path) -> None:
    exporter = MemtraceSpanExporter(path=tmp_path / "a.db")
    assert exporter.export([object()]) is SpanExportResult.FAILURE  # type: ignore[list-item]


def test_a_file_that_is_no_database_is_not_changed(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    path.write_bytes(b"not ours" * 100)
    assert MemtraceSpanExporter(path=path).export(finished_spans("x")) is SpanExportResult.FAILURE
    assert path.read_bytes() == b"not ours" * 100


def test_shutdown_and_flush_have_nothing_to_wait_for(tmp_path: Path) -> None:
    exporter = MemtraceSpanExporter(path=tmp_path / "a.db")
    assert exporter.force_flush()
    exporter.shutdown()
    assert not (tmp_path / "a.db").exists()


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_children_forked_during_exports_write_their_spans(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memtrace_otel.sources.exporter._FORK_WAIT_SECONDS", 60.0)  # however slow the disk is
    exporter = MemtraceSpanExporter(path=tmp_path / "a.db")
    spans = finished_spans("parent")
    done = threading.Event()
    exported = 0

    def keep_exporting() -> None:
        nonlocal exported
        while not done.is_set():
            exported += exporter.export(spans) is SpanExportResult.SUCCESS

    worker = threading.Thread(target=keep_exporting)
    worker.start()
    statuses: list[int] = []
    try:
        for child in range(8):
            own = finished_spans(f"child{child}")
            pid = os.fork()
            if pid == 0:
                result = exporter.export(own)
                os._exit(0 if result is SpanExportResult.SUCCESS else 1)
            statuses.append(os.waitpid(pid, 0)[1])
    finally:
        done.set()
        worker.join()
    assert statuses == [0] * 8
    assert exported > 0
    assert exporter.lost_spans == 0
    assert sorted(stored_names(tmp_path / "a.db")) == [*(f"child{n}" for n in range(8)), "parent"]


@contextmanager
def written_by_another_process(path: Path) -> Generator[None]:
    """Hold the write lock of the database elsewhere."""
    program = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); c.execute('BEGIN IMMEDIATE');"
        "print(flush=True); sys.stdin.readline()"
    )
    pipe = subprocess.PIPE
    with subprocess.Popen([sys.executable, "-c", program, path], stdin=pipe, stdout=pipe) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        yield
        writer.communicate(b"\n")  # not the end of the file: forked children hold the pipe open


def fork_and_export(exporter: MemtraceSpanExporter, name: str) -> tuple[float, int]:
    """Return the seconds that a fork took, and the process id of a child that exits with 0 once it has exported."""
    spans = finished_spans(name)
    started = time.monotonic()
    pid = os.fork()
    if pid == 0:
        os._exit(0 if exporter.export(spans) is SpanExportResult.SUCCESS else 1)
    return time.monotonic() - started, pid


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_fork_does_not_wait_for_the_writer_that_an_export_waits_for(tmp_path: Path) -> None:
    exporter = MemtraceSpanExporter(path=tmp_path / "a.db")
    exporter.export(finished_spans("first"))
    worker = threading.Thread(target=exporter.export, args=(finished_spans("parent"),))
    with written_by_another_process(tmp_path / "a.db"):
        worker.start()
        forks = [fork_and_export(exporter, f"child{number}") for number in range(3)]
    worker.join()
    assert [os.waitpid(pid, 0)[1] for _, pid in forks] == [0, 0, 0]
    assert max(seconds for seconds, _ in forks) < BUSY_SECONDS / 2  # which the worker waits
    assert sorted(stored_names(tmp_path / "a.db")) == ["child0", "child1", "child2", "first", "parent"]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="the system has no fork")
def test_a_child_forked_during_an_endless_export_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    exporter = MemtraceSpanExporter(path=tmp_path / "a.db")
    writing, go_on = threading.Event(), threading.Event()

    def write_slowly(connection: sqlite3.Connection, bodies: Iterable[bytes]) -> None:
        writing.set()
        go_on.wait()
        add_requests(connection, bodies)

    monkeypatch.setattr("memtrace_otel.sources.exporter.add_requests", write_slowly)
    worker = threading.Thread(target=exporter.export, args=(finished_spans("parent"),))
    worker.start()
    writing.wait()
    monkeypatch.undo()
    try:
        _, pid = fork_and_export(exporter, "child")  # waits for ever when it waits for the export
        assert os.waitpid(pid, 0)[1] != 0
    finally:
        go_on.set()
        worker.join()
    assert stored_names(tmp_path / "a.db") == ["parent"]
