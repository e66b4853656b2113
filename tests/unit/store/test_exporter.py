"""`OTEL_TRACES_EXPORTER=memtrace`, in one process: what is written, what a failure does, forks."""

from __future__ import annotations

import logging
import os
import threading
from pathlib import Path

import pytest
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from memtrace_otel.store import SqliteStore
from memtrace_otel.store.exporter import MemtraceSpanExporter


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


def test_a_failure_is_counted_named_once_and_without_contents(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    exporter = MemtraceSpanExporter(path=tmp_path)
    with caplog.at_level(logging.DEBUG):
        assert exporter.export(finished_spans("my-secret")) is SpanExportResult.FAILURE
        assert exporter.export(finished_spans("my-secret", "b")) is SpanExportResult.FAILURE
    assert exporter.lost_spans == 3
    ours = [record.getMessage() for record in caplog.records if record.name.startswith("memtrace_otel")]
    assert len(ours) == 1
    assert str(tmp_path) in ours[0]
    assert "my-secret" not in ours[0]


def test_it_writes_again_once_the_file_can_be_written(tmp_path: Path) -> None:
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


def test_another_schema_version_is_left_alone(tmp_path: Path) -> None:
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
def test_children_forked_amid_exports_write_too(tmp_path: Path) -> None:
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
