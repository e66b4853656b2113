"""The turn at a file: one process or thread at a time, free again however its owner ends, and nothing left behind."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from memtrace_otel.sources import SqliteStore, StoreError
from memtrace_otel.sources.turn import Turn

OWNER = """
import sys
from memtrace_otel.sources import SqliteStore
with SqliteStore.open(sys.argv[1]) as store, store.turn():
    print("mine", flush=True)
    sys.stdin.readline()
"""
COUNTING = """
import sys
from pathlib import Path
from memtrace_otel.sources.turn import Turn
turn, count = Turn(Path(sys.argv[1])), Path(sys.argv[2])
for _ in range(300):
    with turn.taken(wait=True):
        count.write_text(str(int(count.read_text()) + 1))
"""


@contextmanager
def another(database: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has the turn until it is told to end."""
    command = [sys.executable, "-c", OWNER, str(database)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "mine\n"
        yield process
        process.kill()


def is_free(database: Path) -> bool:
    with Turn(database).taken(wait=False) as mine:
        return mine


def test_one_process_at_a_time_and_under_every_name_of_the_file(tmp_path: Path) -> None:
    database = tmp_path / "a.db"
    (tmp_path / "link.db").symlink_to(database)
    with another(database) as process:
        assert not is_free(database)
        assert not is_free(tmp_path / "link.db")
        assert is_free(tmp_path / "b.db")
        process.communicate("\n")
        assert is_free(database)
    assert not list(tmp_path.glob("*turn*"))


def test_who_is_killed_gives_it_free(tmp_path: Path) -> None:
    with another(tmp_path / "a.db") as process:
        process.kill()
        process.wait()
        with Turn(tmp_path / "a.db").taken(wait=True) as mine:
            assert mine
    assert not list(tmp_path.glob("*turn*"))


def test_it_may_be_taken_within_itself_but_not_by_another_thread(tmp_path: Path) -> None:
    with SqliteStore.open(tmp_path / "a.db") as store, SqliteStore.open(tmp_path / "a.db") as other:
        found: list[bool] = []

        def look() -> None:
            for each in (store, other):
                with each.turn(wait=False) as mine:
                    found.append(mine)

        with store.turn() as outer, store.turn(wait=False) as inner:
            assert (outer, inner) == (True, True)
            thread = threading.Thread(target=look)
            thread.start()
            thread.join()
        assert found == [False, False]
        look()
        assert found == [False, False, True, True]


def test_an_error_within_gives_it_free_and_stays_what_it_is(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="theirs"), Turn(tmp_path / "a.db").taken(wait=True):
        raise OSError("theirs")
    assert is_free(tmp_path / "a.db")


def test_where_there_can_be_no_lock_the_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"gone/a\.db"), Turn(tmp_path / "gone" / "a.db").taken(wait=True):
        pass


def test_four_processes_never_have_it_at_once(tmp_path: Path) -> None:
    count = tmp_path / "count"
    count.write_text("0")
    command = [sys.executable, "-c", COUNTING, str(tmp_path / "a.db"), str(count)]
    processes = [subprocess.Popen(command, env={**os.environ}) for _ in range(4)]
    assert [process.wait(60) for process in processes] == [0] * 4
    assert count.read_text() == "1200"
    assert not list(tmp_path.glob("*turn*"))


def test_the_file_that_a_killed_owner_leaves_is_for_all_who_may_write_the_database(tmp_path: Path) -> None:
    database = tmp_path / "a.db"
    SqliteStore.open(database).close()
    database.chmod(0o664)
    mask = os.umask(0o077)
    try:
        with Turn(database).taken(wait=True):
            (left,) = tmp_path.glob("*turn*")
            assert left.stat().st_mode & 0o777 == 0o664
    finally:
        os.umask(mask)


def test_a_link_in_its_place_changes_no_other_file(tmp_path: Path) -> None:
    database, other = tmp_path / "a.db", tmp_path / "other"
    SqliteStore.open(database).close()
    database.chmod(0o666)
    turn = tmp_path / "a.db-turn"
    turn.symlink_to(other)
    with pytest.raises(StoreError), Turn(database).taken(wait=True):
        pass
    assert not other.exists()
    other.touch(0o600)
    with Turn(database).taken(wait=True) as mine:
        assert mine
    assert other.stat().st_mode & 0o777 == 0o600
