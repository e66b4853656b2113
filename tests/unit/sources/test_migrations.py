"""Files of every older schema version are brought to this one, whatever happens meanwhile."""

from __future__ import annotations

import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from memtrace_otel.model import OperationSpan
from memtrace_otel.otlp import encode_request
from memtrace_otel.sources import SqliteStore, StoreError
from memtrace_otel.sources.exporter import MemtraceSpanExporter
from memtrace_otel.sources.migrations import STEPS, Step
from memtrace_otel.sources.schema import VERSION
from tests.unit.graph.conftest import life_of_a_fact
from tests.unit.sources import version_1, version_2, version_3, version_4, version_5

STORY = life_of_a_fact()
INDEXES = ("reader", "writer")


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A file of the oldest version."""
    path = tmp_path / "old.db"
    version_1.write(path, STORY[:-2], waiting=STORY[-2:])
    return path


def tables(path: Path) -> dict[str, str]:
    """The SQL of everything in the file, and its version."""
    with closing(sqlite3.connect(path)) as connection:
        found = dict(connection.execute("SELECT name, sql FROM sqlite_master WHERE sql IS NOT NULL"))
        return found | {"version": str(connection.execute("PRAGMA user_version").fetchone()[0])}


def content(path: Path) -> dict[str, list[object]]:
    """The rows of every table; what is derived from the order of rows comes sorted."""
    with closing(sqlite3.connect(path)) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        return {name: sorted(connection.execute(f"SELECT * FROM {name}")) for name in names}


def as_written_today(folder: Path, spans: list[OperationSpan]) -> Path:
    """A file of this version with the same spans."""
    path = folder / "new.db"
    with SqliteStore.open(path) as store:
        store.add_request(encode_request(spans))
        store.decode()
    return path


def test_every_older_version_has_its_step() -> None:
    assert list(STEPS) == list(range(1, VERSION))


@pytest.mark.parametrize("write", [each.write for each in (version_1, version_2, version_3, version_4, version_5)])
def test_an_old_file_becomes_what_this_version_writes(write: Callable[..., None], tmp_path: Path) -> None:
    old = tmp_path / "old.db"
    write(old, STORY[:-2], waiting=STORY[-2:])
    new = as_written_today(tmp_path, STORY)
    with SqliteStore.open(old, create=False) as store, SqliteStore.open(new) as other:
        assert list(store.spans()) == list(other.spans())
        assert store.check() == []
        assert store.verdict("answer-1").attribution_id == "id-1"  # type: ignore[union-attr]
        assert store.unsent("http://target", ["f00d", "beef"]) == ["beef"]
        assert store.quarantined() == ["torn"]
    assert tables(old) | {"span_kind": ""} == tables(new) | {"span_kind": ""}  # older files keep theirs, of all kinds
    migrated, fresh = content(old), content(new)
    for name in ("writer", "reader", "span", "source"):
        assert migrated[name] == fresh[name]
    assert len(migrated["writer"]) > 5


@pytest.mark.parametrize("write_packed", [version_3.write_packed, version_4.write_packed, version_5.write_packed])
def test_what_an_older_version_packed_is_read_and_gone_when_forgotten(
    write_packed: Callable[..., None], tmp_path: Path
) -> None:
    old = tmp_path / "old.db"
    write_packed(old, STORY)
    with SqliteStore.open(as_written_today(tmp_path, STORY)) as store:
        spans = list(store.spans())
    with SqliteStore.open(old, create=False) as store:
        assert list(store.spans()) == spans
        assert store.check() == []
        store.compact()
        assert list(store.spans()) == spans
        for scope in store.scopes():
            store.forget(scope.scope)
        assert store.check() == []
    with closing(sqlite3.connect(old)) as connection:
        assert connection.execute("SELECT count(*) FROM dictionary WHERE number = 1").fetchone() == (0,)


def test_what_is_decoded_while_one_index_is_read_and_the_other_not_yet_is_in_both(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = tmp_path / "old.db"
    version_2.write(old, STORY)
    with closing(sqlite3.connect(old)) as decoder:
        span = decoder.execute("SELECT max(r.span) FROM reader r JOIN writer w ON w.span = r.span").fetchone()
        late = {table: decoder.execute(f"SELECT * FROM {table} WHERE span >= ?", span).fetchall() for table in INDEXES}

        def remove() -> None:
            for table in INDEXES:
                decoder.execute(f"DELETE FROM {table} WHERE span >= ?", span)
            decoder.commit()

        def decode(sql: str) -> None:
            if sql.startswith("INSERT INTO temp.writing") and any(late.values()):
                for table, rows in late.items():
                    decoder.executemany(f"INSERT INTO {table} VALUES (?, ?)", rows)
                decoder.commit()
                late.clear()

        def prepare(connection: sqlite3.Connection) -> None:
            connection.set_trace_callback(decode)
            step.prepare(connection)
            connection.set_trace_callback(None)

        remove()
        step = STEPS[2]
        monkeypatch.setitem(STEPS, 2, Step(prepare, step.apply))
        assert late["reader"]
        with SqliteStore.open(old) as store:
            assert store.check() == []
    assert not late


def test_an_exporter_adds_to_an_old_file_and_leaves_its_version(old: Path) -> None:
    assert MemtraceSpanExporter(old).export_request(encode_request(STORY[:1])).name == "SUCCESS"
    assert tables(old)["version"] == "1"
    with SqliteStore.open(old) as store:
        assert store.stats().spans == len(STORY)


@pytest.mark.parametrize("version", [0, VERSION + 1, 99])
def test_an_unknown_version_is_refused_by_its_name(old: Path, version: int) -> None:
    with closing(sqlite3.connect(old)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    before = content(old)
    with pytest.raises(StoreError, match=f"schema version {version}; this program reads versions up to {VERSION}"):
        SqliteStore.open(old)
    assert content(old) == before


def test_an_old_file_that_cannot_be_written_is_refused_with_the_reason(
    old: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("memtrace_otel.sources.sqlite.connect", _impatient)
    with closing(sqlite3.connect(old)) as holder:  # as another process that does not let go of the write lock
        holder.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError) as caught:
            SqliteStore.open(old)
    assert f"schema version 1 could not be brought to {VERSION}" in caught.value.reason
    assert "locked" in caught.value.reason
    assert tables(old)["version"] == "1"


def _impatient(path: Path, *, create: bool) -> sqlite3.Connection:
    from memtrace_otel.sources.connection import connect

    return connect(path, create=create, busy_seconds=0.05)


KILLED = """
import os, signal, sys
from memtrace_otel.sources import SqliteStore, migrations
step = migrations.STEPS[1]
def die(connection):
    if sys.argv[2] == "after":
        step.apply(connection)
    else:
        connection.execute("CREATE TABLE half (x)")
    os.kill(os.getpid(), signal.SIGKILL)
migrations.STEPS[1] = migrations.Step(step.prepare, die)
SqliteStore.open(sys.argv[1])
"""


@pytest.mark.parametrize("place", ["amid", "after"])
def test_killed_half_way_it_is_an_old_file_still(old: Path, place: str) -> None:
    before = tables(old)
    done = subprocess.run([sys.executable, "-c", KILLED, old, place], check=False)
    assert done.returncode == -signal.SIGKILL
    assert tables(old) == before
    with SqliteStore.open(old) as store:
        assert store.stats().spans == len(STORY)
        assert store.check() == []


OPENER = """
import sys, time
from memtrace_otel.sources import SqliteStore
print("ready", flush=True)
sys.stdin.readline()
with SqliteStore.open(sys.argv[1]) as store:
    print(store.stats().spans, len(store.check()))
"""


def test_several_that_open_at_once_all_get_the_new_file(old: Path) -> None:
    command = [sys.executable, "-c", OPENER, str(old)]
    openers = [subprocess.Popen(command, stdin=-1, stdout=-1, stderr=-1, text=True) for _ in range(4)]
    for opener in openers:
        assert opener.stdout.readline() == "ready\n"  # type: ignore[union-attr]
    for opener in openers:
        opener.stdin.write("\n")  # type: ignore[union-attr]
        opener.stdin.flush()  # type: ignore[union-attr]
    said = [opener.communicate()[0].strip() or opener.returncode for opener in openers]
    assert said == [f"{len(STORY)} 0"] * 4


def test_what_is_decoded_and_pruned_meanwhile_is_seen(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An old program goes on decoding between the two halves of a step."""
    step = STEPS[1]

    def prepare(connection: sqlite3.Connection) -> None:
        step.prepare(connection)
        with closing(sqlite3.connect(old)) as other:
            version_1._insert(other, STORY[-2:])
            other.execute("DELETE FROM reader WHERE span = 1")
            other.execute("DELETE FROM span WHERE id = 1")
            other.commit()

    monkeypatch.setitem(STEPS, 1, step._replace(prepare=prepare))
    with SqliteStore.open(old) as store:
        assert store.check() == []
        assert store.stats().spans == len(STORY) - 1
