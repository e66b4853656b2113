"""Opening the SQLite file: WAL, several processes at once, and never touching a file that is not ours."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from memtrace_otel.store.errors import StoreError
from memtrace_otel.store.schema import APPLICATION_ID, STATEMENTS, VERSION

BUSY_SECONDS = 10.0
"""How long a statement waits for another process that writes."""
_LOOK_SECONDS = 0.0005
_CHECKPOINT_PAGES = 8192


def connect(path: Path, *, create: bool, busy_seconds: float = BUSY_SECONDS) -> sqlite3.Connection:
    """Open the database at `path`, with `create` making file, folder and tables when they are missing.

    Raises StoreError for a missing file, a file that is no database of ours and another schema version; such a file is
    left as it is. The connection is in autocommit mode and syncs every commit to disk.
    """
    if not create and not path.exists():
        raise StoreError(path, "no such database")
    with translated_errors(path):
        if create:
            path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(path, timeout=busy_seconds, isolation_level=None, check_same_thread=False)
        try:
            if _is_blank(connection):
                if not create:
                    raise StoreError(path, "an empty file, no memtrace-otel database")
                _create(connection, busy_seconds)
            _check(connection, path)
            connection.execute("PRAGMA synchronous = FULL")
            # Bodies that are decoded before that many pages are written never go into the file itself.
            connection.execute(f"PRAGMA wal_autocheckpoint = {_CHECKPOINT_PAGES}")
        except BaseException:
            connection.close()
            raise
    return connection


@contextmanager
def transaction(connection: sqlite3.Connection) -> Generator[None]:
    """Hold the single write lock of the database from the start: a later upgrade could fail for a stale snapshot."""
    execute_patiently(connection, "BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


def execute_patiently(connection: sqlite3.Connection, statement: str) -> None:
    """Execute a statement that takes the write lock, as soon as it is free.

    SQLite itself looks ever more rarely, up to 0.1 s apart: beside a process that writes all the time it never finds
    the lock free.
    """
    patience = pragma(connection, "busy_timeout")
    deadline = time.monotonic() + patience / 1000
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        while True:
            try:
                connection.execute(statement)
                return
            except sqlite3.OperationalError as error:
                if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > deadline:
                    raise
            time.sleep(_LOOK_SECONDS)
    finally:
        connection.execute(f"PRAGMA busy_timeout = {patience}")


@contextmanager
def translated_errors(path: Path) -> Generator[None]:
    """Raise what SQLite and the file system report as StoreError."""
    try:
        yield
    except (sqlite3.Error, OSError) as error:
        raise StoreError(path, str(error)) from error


def pragma(connection: sqlite3.Connection, name: str) -> int:
    """Return the value of a setting or counter of SQLite."""
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _is_blank(connection: sqlite3.Connection) -> bool:
    tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    return tables == 0 and pragma(connection, "user_version") == 0


def _check(connection: sqlite3.Connection, path: Path) -> None:
    found = pragma(connection, "user_version")
    if pragma(connection, "application_id") != APPLICATION_ID:
        raise StoreError(path, "a SQLite database, but not one of memtrace-otel")
    if found != VERSION:
        raise StoreError(path, f"schema version {found}; this program reads version {VERSION}")


def _create(connection: sqlite3.Connection, busy_seconds: float) -> None:
    """Make the tables; of several processes that try at once one does."""
    deadline = time.monotonic() + busy_seconds
    while True:  # the switch to WAL does not wait for other connections by itself
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    with transaction(connection):
        if _is_blank(connection):
            for statement in STATEMENTS:
                connection.execute(statement)
