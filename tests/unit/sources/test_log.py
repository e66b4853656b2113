"""Readers keep no writer waiting, and the log does not grow for ever because of them."""

from __future__ import annotations

import sqlite3
import threading
import time
from pathlib import Path

import pytest

from memtrace_otel.sources import SqliteStore

BODY = b"x" * 100_000
LIMIT = 1 << 20


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A database whose log is to stay below a megabyte or two."""
    monkeypatch.setattr("memtrace_otel.sources.connection._LOG_BYTES", LIMIT)
    monkeypatch.setattr("memtrace_otel.sources.connection._LOG_PAGES", LIMIT // 4096)
    monkeypatch.setattr("memtrace_otel.sources.connection._LOG_SECONDS", 0.0)
    return tmp_path / "a.db"


def log_size(path: Path) -> int:
    return path.with_name(f"{path.name}-wal").stat().st_size


def reading(path: Path) -> sqlite3.Connection:
    """A connection that keeps seeing the database as it is now."""
    reader = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    reader.execute("BEGIN")
    reader.execute("SELECT count(*) FROM inbox").fetchone()
    return reader


def test_beside_a_reader_that_stays_everything_is_written(path: Path) -> None:
    with SqliteStore.open(path) as store:
        reader = reading(path)
        for _ in range(40):
            store.add_request(BODY)
        assert store.waiting_bytes() == 40 * len(BODY)
        assert log_size(path) > 2 * LIMIT  # it needs its pages
        assert reader.execute("SELECT count(*) FROM inbox").fetchone() == (0,)
        reader.close()
        store.decode()
        store.add_request(BODY)
        assert log_size(path) <= 2 * LIMIT


def test_readers_that_follow_one_another_without_a_gap_do_not_make_the_log_grow(path: Path) -> None:
    done = threading.Event()

    def overlap() -> None:
        last = reading(path)
        while not done.is_set():
            following = reading(path)
            last.close()
            last = following
            time.sleep(0.001)
        last.close()

    with SqliteStore.open(path) as store:
        reader = threading.Thread(target=overlap)
        reader.start()
        sizes: list[int] = []
        for _ in range(150):
            store.add_request(BODY)
            store.decode()
            sizes.append(log_size(path))
        done.set()
        reader.join()
    assert max(sizes) < 150 * len(BODY) / 2


def test_the_log_is_copied_by_who_is_told_to_copy_it_early(path: Path) -> None:
    with SqliteStore.open(path) as receiving, SqliteStore.open(path) as decoding:
        receiving.copy_log_every(10_000)
        decoding.copy_log_every(10)
        before = path.stat().st_size
        for _ in range(3):
            receiving.add_request(BODY)
        assert path.stat().st_size == before
        assert decoding.decode() == 0  # sets them aside
        assert path.stat().st_size > 3 * len(BODY)
        receiving.add_request(BODY)
        assert log_size(path) <= LIMIT
