"""Opening the SQLite file: WAL, several processes at once, and never touching a file that is not ours."""

from __future__ import annotations

import errno
import os
import sqlite3
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TypeVar

from memtrace_otel.sources.errors import DamagedError, StoreError
from memtrace_otel.sources.log import keep_damaged, read_log
from memtrace_otel.sources.schema import APPLICATION_ID, STATEMENTS, VERSION

BUSY_SECONDS = 10.0
"""How long a statement waits for another process that writes."""
INCREMENTAL = 2
"""Of `auto_vacuum`."""
_LOOK_SECONDS = 0.0005
_PAUSE_SECONDS = 0.003
_LOG_PAGES = 8192
_CACHE_KIB = 16 << 10
"""With SQLite's 2 MiB a batch of spans in a large file wrote pages of its indexes early and read them again."""
_LOG_BYTES = 32 << 20
_LOG_WAIT_MS = 50
_LOG_SECONDS = 1.0
"""Between two attempts of this process to start the log anew while readers hold on to it."""

T = TypeVar("T")
Locked = Callable[[], AbstractContextManager[sqlite3.Connection]]
"""Gives the connection to one thread at a time."""


def connect(path: Path, *, create: bool, busy_seconds: float = BUSY_SECONDS) -> sqlite3.Connection:
    """Open the database at `path`, with `create` making file, folder and tables when they are missing.

    Raises StoreError for a missing file, a file that is no database of ours and a newer schema version; such a file is
    left as it is. An older file is opened: its inbox can be written, everything else once it is migrated. The
    connection is in autocommit mode and syncs every commit to disk.
    """
    if not create and not path.exists():
        raise StoreError(path, "no such database")
    with TranslatedErrors(path):
        if create:
            path.parent.mkdir(parents=True, exist_ok=True)
        log = read_log(path)
        connection = sqlite3.connect(path, timeout=busy_seconds, isolation_level=None, check_same_thread=False)
        try:
            if _is_blank(connection, path):
                if not create:
                    raise StoreError(path, "an empty file, no memtrace-otel database")
                _create(connection, busy_seconds)
            _check(connection, path)
            connection.execute("PRAGMA synchronous = FULL")
            connection.execute(f"PRAGMA cache_size = {-_CACHE_KIB}")
            # Bodies that are decoded before that many pages are written never go into the file itself.
            copy_log_every(connection, _LOG_PAGES)
            connection.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")
            if log is not None:
                keep_damaged(connection, path, log)
        except BaseException:
            connection.close()
            raise
    return connection


def copy_log_every(connection: sqlite3.Connection, pages: int) -> None:
    """Copy the log into the file when a commit on `connection` finds that many pages in it; past twice as many readers
    are waited for, so that the log starts anew."""
    connection.execute(f"PRAGMA wal_autocheckpoint = {pages}")


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
    _bound_log(connection)


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Generator[None]:
    """Read one state of the file, whatever others write meanwhile."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            with suppress(sqlite3.DatabaseError):  # says once more that a damaged page was met
                connection.execute("COMMIT")


@contextmanager
def unsynced(connection: sqlite3.Connection) -> Generator[None]:
    """Commit without waiting for the disk: with a power failure what was committed may be lost, the file is sound."""
    connection.execute("PRAGMA synchronous = NORMAL")
    try:
        yield
    finally:
        connection.execute("PRAGMA synchronous = FULL")


_next_attempt = 0.0


def _bound_log(connection: sqlite3.Connection) -> None:
    """Start the log anew when it has grown although SQLite copies it into the file by itself.

    That is when readers follow one another without a gap. They are waited for with the write lock in hand, for a
    moment; against a reader that stays nothing can be done, and the log grows until it goes.
    """
    global _next_attempt
    if time.monotonic() < _next_attempt:
        return
    try:
        size = os.stat(f"{file_of(connection)}-wal").st_size
    except OSError:
        return
    # Of a log that has started anew the file stays, with `_LOG_BYTES`.
    if size <= max(_LOG_BYTES, 2 * pragma(connection, "wal_autocheckpoint") * pragma(connection, "page_size")):
        return
    _next_attempt = time.monotonic() + _LOG_SECONDS
    patience = pragma(connection, "busy_timeout")
    connection.execute(f"PRAGMA busy_timeout = {_LOG_WAIT_MS}")
    try:
        connection.execute("PRAGMA wal_checkpoint(RESTART)").fetchone()
    except sqlite3.OperationalError:  # a full disk: what was committed is so all the same
        pass
    finally:
        connection.execute(f"PRAGMA busy_timeout = {patience}")


def in_turns(
    locked: Locked, items: Sequence[T], size: int, work: Callable[[sqlite3.Connection, Sequence[T]], None]
) -> None:
    """Do `work` on `items` in batches, each in a transaction of its own; between two of them other writers get their
    turn.

    The lock is free for as long as it was held: on a busy machine nobody would see a short pause. It is not held while
    the disk is waited for: with the last batch, or with what another writer commits, all that went before is synced.
    """
    for start in range(0, len(items), size):
        is_last = start + size >= len(items)
        with locked() as connection, nullcontext() if is_last else unsynced(connection), transaction(connection):
            taken = time.monotonic()
            work(connection, items[start : start + size])
        if not is_last:
            time.sleep(max(_PAUSE_SECONDS, time.monotonic() - taken))


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


class TranslatedErrors:
    """Raises what SQLite and the file system report as StoreError, a page that cannot be read as DamagedError."""

    __slots__ = ("_path",)

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, sqlite3.Error | OSError):
            code = sqlite3.SQLITE_FULL if getattr(error, "errno", 0) == errno.ENOSPC else 0
            code = getattr(error, "sqlite_errorcode", code)
            raised = DamagedError if is_corrupt(error) else StoreError
            raise raised(self._path, f"{error}{_ADVICE.get(code) or _ADVICE.get(code & 0xFF, '')}") from error


_UNREADABLE = (
    "the file was cut off, or its beginning is damaged: it cannot be opened; restore a copy, or see what SQLite's shell"
    " still reads: `sqlite3 FILE .dump`"
)
_ACCESS = "; file and folder have to be writable, also for reading: the log is kept beside the file"
_ROOM = (
    "; where its disk is full, free some megabytes first: also what removes something writes to the log beside the file"
    " (`store compact` needs as much room as the file takes); where it is not, `memtrace-otel store check` names what"
    " is damaged"
)
_ADVICE = {
    sqlite3.SQLITE_CORRUPT: "; `memtrace-otel store check` names what cannot be read",
    sqlite3.SQLITE_READONLY: _ACCESS,
    sqlite3.SQLITE_CANTOPEN: _ACCESS,
    sqlite3.SQLITE_BUSY: "; another process writes and does not end",
    sqlite3.SQLITE_FULL: _ROOM,
    sqlite3.SQLITE_IOERR_SHMSIZE: _ROOM,
}
"""By result code of SQLite, else by its primary one."""


def is_corrupt(error: BaseException | None) -> bool:
    """Tell whether SQLite found a page that is not as it was written."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_CORRUPT


def file_of(connection: sqlite3.Connection) -> Path:
    """Return the path of the database file."""
    return Path(connection.execute("PRAGMA database_list").fetchone()[2])


def pragma(connection: sqlite3.Connection, name: str) -> int:
    """Return the value of a setting or counter of SQLite."""
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _is_blank(connection: sqlite3.Connection, path: Path) -> bool:
    try:
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    except sqlite3.DatabaseError as error:
        if is_corrupt(error):
            raise StoreError(path, _UNREADABLE) from error
        raise
    return tables == 0 and pragma(connection, "user_version") == 0


def _check(connection: sqlite3.Connection, path: Path) -> None:
    found = pragma(connection, "user_version")
    if pragma(connection, "application_id") != APPLICATION_ID:
        raise StoreError(path, "a SQLite database, but not one of memtrace-otel")
    if not 1 <= found <= VERSION:
        raise StoreError(path, f"schema version {found}; this program reads versions up to {VERSION}")


def _create(connection: sqlite3.Connection, busy_seconds: float) -> None:
    """Make the tables; of several processes that try at once one does."""
    deadline = time.monotonic() + busy_seconds
    # Before anything is written: only then can free pages be given back a few at a time, without `VACUUM`.
    connection.execute(f"PRAGMA auto_vacuum = {INCREMENTAL}")
    while True:  # the switch to WAL does not wait for other connections by itself
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    with transaction(connection):
        if _is_blank(connection, file_of(connection)):
            for statement in STATEMENTS:
                connection.execute(statement)
