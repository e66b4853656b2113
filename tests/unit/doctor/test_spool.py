"""Spans that wait on disk."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from memtrace_otel.capture.processor.spool import Spool, spool_directory
from memtrace_otel.doctor import State
from memtrace_otel.model import OperationSpan
from memtrace_otel.otlp import encode_request
from memtrace_otel.sources.exporter import MemtraceSpanExporter
from tests.unit.doctor.conftest import Examine, one


def leave(folder: Path, size: int, age: float = 3600) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "1-1-1.spool"
    path.write_bytes(bytes(size))
    os.utime(path, (time.time() - age,) * 2)


def spool_of(doctor: Examine) -> Path:
    """The directory in which spans wait for the exporter of the program."""
    findings = doctor()
    base = one(findings, "spool").found.removeprefix("nothing waits in ")
    return spool_directory(MemtraceSpanExporter(one(findings, "exporter").found), base)


def test_what_waits_for_the_same_receiver_and_for_others(doctor: Examine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OTEL_SERVICE_NAME", raising=False)
    folder = spool_of(doctor)
    leave(folder, 2_000_000, age=1)
    recent = one(doctor(), "spool")
    assert (recent.state, "2.0 MB wait" in recent.found) == (State.OK, True)
    leave(folder, 2_000_000)
    waiting = one(doctor(), "spool")
    assert (waiting.state, "2.0 MB" in waiting.found) == (State.WARNING, True)
    assert waiting.remedy == "memtrace-otel run -- python app.py"
    full = one(doctor(MEMTRACE_SPOOL_BYTES="2000000"), "spool")
    assert (full.state, full.remedy.startswith("export MEMTRACE_SPOOL_BYTES=8000000")) == (State.PROBLEM, True)
    other = one(doctor(OTEL_SERVICE_NAME="shop"), "spool")
    assert (other.state, other.remedy.startswith("export OTEL_SERVICE_NAME=")) == (State.WARNING, True)


def test_what_waits_is_left_to_the_program(doctor: Examine, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("OTEL_SERVICE_NAME", raising=False)
    folder = spool_of(doctor)
    waiting = Spool(folder, 1 << 30)
    for number in range(20):
        waiting.append(encode_request([OperationSpan(f"{number:032x}", "1" * 16)]))
    waiting.close()
    before = {path: path.read_bytes() for path in folder.iterdir()}
    doctor()
    assert {path: path.read_bytes() for path in folder.iterdir()} == before
    assert not (tmp_path / "memtrace.db").exists()


def test_a_spool_that_cannot_be_written(doctor: Examine, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = one(doctor(MEMTRACE_SPOOL_DIR=str(tmp_path / "file" / "spool")), "spool")
    assert (found.state, found.remedy.startswith("export MEMTRACE_SPOOL_DIR=")) == (State.WARNING, True)
    assert f"{tmp_path / 'file'} is no directory" in found.found
    assert one(doctor(MEMTRACE_SPOOL_DIR=str(tmp_path / "new" / "spool")), "spool").state is State.OK
