"""The database and what it holds: each lack is named with what to type."""

from __future__ import annotations

import sqlite3
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from memtrace_otel import operation, semconv
from memtrace_otel.doctor import Finding, State
from memtrace_otel.doctor.database import check_database
from memtrace_otel.doctor.recorded import check_recorded
from memtrace_otel.launch import read_recorded
from memtrace_otel.model import OperationSpan
from memtrace_otel.otlp import encode_request
from memtrace_otel.semconv import Incomplete
from memtrace_otel.sources import SqliteStore
from memtrace_otel.sources.exporter import MemtraceSpanExporter
from tests.conftest import Recording
from tests.unit.doctor.conftest import one

RERUN = "memtrace-otel run -- python shop.py"


def stored(path: Path, *spans: OperationSpan) -> Path:
    with SqliteStore.open(path) as store:
        store.add_request(encode_request(spans))
    return path


def span(number: int, **fields: Any) -> OperationSpan:
    now = time.time_ns()
    given = {"kind": "retrieve", "system": "mem0", "name": "search_memory", "start": now - 10**9, "end": now} | fields
    return OperationSpan(f"{number:032x}", f"{number:016x}", **given)


def examined(database: Path) -> list[Finding]:
    return [*check_database(database), *check_recorded(database, RERUN)]


# --- the file ----------------------------------------------------------------------------------------------------
def test_a_file_that_will_be_made(tmp_path: Path) -> None:
    for path in (tmp_path / "new.db", tmp_path / "new" / "folder" / "new.db"):
        assert one(list(check_database(path)), "database").state == State.OK
        assert not path.parent.exists() or not path.exists()


def test_places_where_no_file_can_be(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for path in (tmp_path, tmp_path / "file" / "memtrace.db"):
        found = one(list(check_database(path)), "database")
        assert (found.state, found.remedy) == (State.PROBLEM, "export MEMTRACE_DB=~/memtrace.db")


def test_a_file_that_another_process_has_locked(tmp_path: Path) -> None:
    path = stored(tmp_path / "memtrace.db", span(1))
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        found = one(list(check_database(path)), "database")
    assert (found.state, found.remedy.startswith("fuser -v ")) == (State.PROBLEM, True)
    assert "lock" in found.found


def test_a_file_of_another_version_or_of_another_program(tmp_path: Path) -> None:
    newer = stored(tmp_path / "newer.db", span(1))
    with closing(sqlite3.connect(newer)) as connection:
        connection.execute("PRAGMA user_version = 99")
    foreign = tmp_path / "notes.txt"
    foreign.write_text("not a database " * 500)
    for path, said in ((newer, "99"), (foreign, "not a")):
        found = one(list(check_database(path)), "database")
        assert (found.state, said in found.found, bool(found.remedy)) == (State.PROBLEM, True, True)


def test_requests_that_could_not_be_read(tmp_path: Path) -> None:
    path = stored(tmp_path / "memtrace.db", span(1))
    with SqliteStore.open(path) as store:
        store.add_request(b"\xff\xff\xff")
        store.decode()
    found = one(list(check_database(path)), "quarantine")
    assert (found.state, "1 requests" in found.found) == (State.WARNING, True)


# --- what it holds -----------------------------------------------------------------------------------------------
def test_nothing_yet(tmp_path: Path) -> None:
    empty = stored(tmp_path / "empty.db")
    other = stored(tmp_path / "other.db", span(1, kind="", name="GET /"))
    for path in (tmp_path / "missing.db", empty, other):
        found = one(list(check_recorded(path, RERUN)), "recorded")
        assert (found.state, found.remedy) == (State.WARNING, RERUN)


def test_an_imported_system_without_a_recorded_call_is_a_warning(tmp_path: Path) -> None:
    unused = span(1, kind="", name=semconv.UNUSED_SPAN, system="openai")
    path = stored(tmp_path / "memtrace.db", unused, span(2, parent_id="ab" * 8))
    found = one(list(check_recorded(path, RERUN)), "unused")
    assert (found.state, "imported openai" in found.found) == (State.WARNING, True)
    answered = stored(tmp_path / "answered.db", unused, span(2, kind="respond", parent_id="ab" * 8))
    assert "unused" not in {finding.check for finding in check_recorded(answered, RERUN)}


def test_what_is_complete_has_no_warning(tmp_path: Path) -> None:
    whole = stored(
        tmp_path / "memtrace.db", span(1, parent_id="ab" * 8, seq=1), span(2, kind="respond", parent_id="ab" * 8, seq=2)
    )
    [found] = check_recorded(whole, RERUN)
    assert (found.check, found.state) == ("recorded", State.OK)
    assert "2 of mem0; the last operation, search_memory, 1 s ago" in found.found


def test_operations_that_lost_their_parent_are_named_by_their_place(recording: Recording, tmp_path: Path) -> None:
    @operation("search_memory", kind="retrieve", system="notes", tracer=recording.tracer)
    def find_in_notes() -> None: ...

    find_in_notes()
    find_in_notes()
    exporter = MemtraceSpanExporter(tmp_path / "memtrace.db")
    exporter.export(recording.spans())
    found = one(list(check_recorded(exporter.path, RERUN)), "parent")
    assert found.state == State.WARNING
    assert "find_in_notes" in found.found
    assert "start_as_current_span" in found.remedy


def test_answers_alone_miss_nothing_until_something_was_searched(tmp_path: Path) -> None:
    answer = span(1, kind="respond", name="chat")
    path = stored(tmp_path / "memtrace.db", answer, span(2, kind="respond", name="chat"), span(3, kind="create"))
    assert [finding.check for finding in check_recorded(path, RERUN)] == ["recorded"]
    searched = stored(tmp_path / "searched.db", answer, span(2))
    assert one(list(check_recorded(searched, RERUN)), "parent").state == State.WARNING


@pytest.mark.parametrize(
    ("reason", "check", "state", "remedy"),
    [
        (Incomplete.UNKNOWN_ORIGIN, "origin", State.WARNING, "memtrace-otel run"),
        (Incomplete.CONTENT_OFF, "recorded contents", State.WARNING, "=SPAN_ONLY"),
        (Incomplete.TRUNCATED, "recorded contents", State.WARNING, "export MEMTRACE_PREVIEW_BYTES="),
        (Incomplete.UNKNOWN_TURN, "turn", State.WARNING, "start_as_current_span"),
        (Incomplete.GUARD, "capture", State.PROBLEM, "memtrace-otel version"),
        (Incomplete.BUDGET, "drops", State.WARNING, "export MEMTRACE_SPAN_PARTS="),
        (Incomplete.DROPPED, "drops", State.WARNING, "export MEMTRACE_SPAN_PARTS="),
    ],
)
def test_what_operations_lack(reason: Incomplete, check: str, state: State, remedy: str, tmp_path: Path) -> None:
    path = stored(tmp_path / "memtrace.db", span(1, parent_id="ab" * 8, incomplete=(reason.value,)))
    found = one(list(check_recorded(path, RERUN)), check)
    assert (found.state, remedy in found.remedy) == (state, True)
    assert "1 " in found.found


def test_gaps_and_drops(tmp_path: Path) -> None:
    parent = {"parent_id": "ab" * 8}
    gap = stored(tmp_path / "gap.db", span(1, seq=1, **parent), span(2, seq=5, **parent))
    found = one(list(check_recorded(gap, RERUN)), "losses")
    assert (found.state, "3 spans" in found.found) == (State.WARNING, True)
    told = stored(tmp_path / "told.db", span(1, kind="other", attributes={semconv.LOST: 40}), span(2, **parent))
    found = one(list(check_recorded(told, RERUN)), "losses")
    assert (found.state, "40 spans" in found.found) == (State.PROBLEM, True)
    assert found.remedy.startswith("export MEMTRACE_SPOOL_BYTES=")


def test_a_clock_that_is_ahead(tmp_path: Path) -> None:
    later = time.time_ns() + 7200 * 10**9
    found = one(list(check_recorded(stored(tmp_path / "memtrace.db", span(1, start=later, end=later)), RERUN)), "clock")
    assert (found.state, found.remedy) == (State.PROBLEM, "timedatectl set-ntp true")
    assert "119 min" in found.found or "2 h" in found.found


def test_calls_that_the_program_suppressed_are_a_warning(tmp_path: Path) -> None:
    suppressed = span(1, kind="", name=semconv.SUPPRESSED_SPAN, system="openai", attributes={semconv.LOST: 3})
    path = stored(tmp_path / "memtrace.db", suppressed, span(2, kind="respond", parent_id="ab" * 8))
    findings = list(check_recorded(path, RERUN))
    assert "3 calls of openai" in one(findings, "suppressed").found
    assert "losses" not in {finding.check for finding in findings}
    assert read_recorded(path, 0).suppressed == "3 calls of openai"
