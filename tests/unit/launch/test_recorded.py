"""What a run left in the database."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from memtrace_otel.launch import Recorded, read_recorded
from memtrace_otel.model import OperationSpan
from memtrace_otel.otlp import encode_request
from memtrace_otel.sources import SqliteStore


def test_operations_since_a_moment_are_counted_by_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def span(number: int, start: int, kind: str, system: str, part: int = 0, *incomplete: str) -> OperationSpan:
        return OperationSpan(
            f"{number // 2:032x}",
            f"{number:016x}",
            kind=kind,
            system=system,
            start=start,
            end=start,
            part=part,
            incomplete=incomplete,
        )

    spans = (
        span(2, 5, "create", "mem0"),  # of an earlier run
        span(4, 10, "retrieve", "mem0", 0, "content_off"),
        span(5, 11, "respond", "openai"),
        span(6, 12, "judge", "openai"),
        span(7, 12, "judge", "openai", 1),
        span(8, 13, "", "http"),
    )
    with SqliteStore.open(tmp_path / "memtrace.db") as store:
        store.add_request(encode_request(spans))
    found = read_recorded(tmp_path / "memtrace.db", 10)
    assert found == Recorded({"openai": 2, "mem0": 1}, judged=1, without_content=1)
    assert found.operations == 3
    assert read_recorded(tmp_path / "missing.db", 0).operations == 0
    monkeypatch.setattr("memtrace_otel.launch.recorded.MOST", 2)
    assert read_recorded(tmp_path / "memtrace.db", 10) == Recorded({"mem0": 1, "openai": 1}, 0, 1, complete=False)


def test_spans_that_wait_in_the_spool_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMTRACE_SPOOL_DIR", str(tmp_path / "spool"))
    database = tmp_path / "memtrace.db"
    assert read_recorded(database, 0).waiting == 0
    for folder, name in (("MemtraceSpanExporter-1", "a.spool"), ("OTLPSpanExporter-1", "b.spool")):
        (tmp_path / "spool" / folder).mkdir(parents=True)
        (tmp_path / "spool" / folder / name).write_bytes(b"12345")
    assert read_recorded(database, 0).waiting == 5
    assert read_recorded(database, time.time_ns() + 10**10).waiting == 0
