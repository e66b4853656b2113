"""Opening the SQLite file in WAL mode, transactions, the file lock, and errors of SQLite as errors of sources."""

from __future__ import annotations

import errno
import os
import sqlite3
import time
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

import filelock

from memtrace_otel.sources.errors import DamagedError, SourceError
from memtrace_otel.sources.schema import APPLICATION_ID, STATEMENTS, VERSION, is_ours

BUSY_SECONDS = 10.0
"""How long a statement waits for another process that writes."""
_RETRY_SECONDS = 0.001
_CACHE_KIB = 32 << 10
_LOG_PAGES = 8192
"""Pages in the log after which a commit copies the log into the file."""
_LOG_BYTES = 32 << 20
"""Size to which a finished log is cut."""
_VALUE_BYTES = 256 << 20
"""Largest value that SQLite may read or write."""
_FILE_MODE = 0o600


def connect(path: Path, *, create: bool, busy_seconds: float = BUSY_SECONDS) -> sqlite3.Connection:
    """Open the database at `path`; with `create` make a missing file, its folder and tables.

    The connection is in autocommit mode and syncs every commit to disk. A new file is readable by its owner alone; so
    are its log and index, which SQLite makes with the same mode. Raises SourceError for a missing file, a file that is
    no database of memtrace-otel, and a file of another schema version; such a file is not changed.
    """
    if not create and not path.exists():
        raise SourceError(path, "no such database")
    with TranslatedErrors(path):
        if create:
            path.parent.mkdir(parents=True, exist_ok=True)
            with suppress(FileExistsError):
                os.close(os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE_MODE))
        # An absolute path never begins with `file:`, which SQLite would read as a URI.
        connection = sqlite3.connect(
            path.absolute(), timeout=busy_seconds, isolation_level=None, check_same_thread=False
        )
        try:
            _set_up(connection, path, create=create, busy_seconds=busy_seconds)
        except BaseException:
            connection.close()
            raise
    return connection


def _set_up(connection: sqlite3.Connection, path: Path, *, create: bool, busy_seconds: float) -> None:
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, _VALUE_BYTES)
    connection.execute("PRAGMA trusted_schema = OFF")
    if _is_blank(connection, path):
        if not create:
            raise SourceError(path, "an empty file, no memtrace-otel database")
        _create_tables(connection, busy_seconds)
    _check_schema(connection, path)
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")
    connection.execute(f"PRAGMA cache_size = {-_CACHE_KIB}")
    connection.execute(f"PRAGMA wal_autocheckpoint = {_LOG_PAGES}")
    connection.execute(f"PRAGMA journal_size_limit = {_LOG_BYTES}")


@contextmanager
def transaction(connection: sqlite3.Connection) -> Generator[None]:
    """Hold the single write lock of the database from the start; commit at the end, roll back on an error."""
    _begin(connection)
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def snapshot(connection: sqlite3.Connection) -> Generator[None]:
    """Read one state of the file while other connections write."""
    connection.execute("BEGIN")
    try:
        yield
    finally:
        if connection.in_transaction:
            with suppress(sqlite3.DatabaseError):  # SQLite reports a damaged page a second time
                connection.execute("COMMIT")


@contextmanager
def unsynced(connection: sqlite3.Connection) -> Generator[None]:
    """Commit without waiting for the disk: a power failure may lose these commits, the file stays sound."""
    connection.execute("PRAGMA synchronous = NORMAL")
    try:
        yield
    finally:
        connection.execute("PRAGMA synchronous = FULL")


def _begin(connection: sqlite3.Connection) -> None:
    """Take the write lock as soon as another process releases it.

    SQLite's own retries become rare, up to 0.1 s apart: beside a process that writes all the time they starve.
    """
    patience = pragma(connection, "busy_timeout")
    deadline = time.monotonic() + patience / 1000
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        while True:
            try:
                connection.execute("BEGIN IMMEDIATE")
                return
            except sqlite3.OperationalError as error:
                if not is_busy(error) or time.monotonic() > deadline:
                    raise
            time.sleep(_RETRY_SECONDS)
    finally:
        connection.execute(f"PRAGMA busy_timeout = {patience}")


class FileLock:
    """An advisory lock on `DATABASE-lock`: one process at a time makes, saves and sends the verdicts of a file.

    SQLite's own locks do not fit: no other process could write while a receiver of verdicts takes its time. Threads of
    one process exclude each other; one thread may take the lock several times. The system releases the lock when its
    owner dies.
    """

    def __init__(self, database: Path) -> None:
        self._database = database.resolve()  # like SQLite, which puts its log beside the target of a link
        path = self._database.with_name(f"{self._database.name}-lock")
        self._lock = filelock.FileLock(path, mode=_FILE_MODE)

    @contextmanager
    def held(self, *, wait: bool = True) -> Generator[bool]:
        """Hold the lock. Yields False, without the lock, when another owner has it and `wait` is false.

        Raises SourceError when the file cannot be locked.
        """
        try:
            self._lock.acquire(timeout=-1 if wait else 0)
        except filelock.Timeout:
            yield False
            return
        except OSError as error:
            raise SourceError(self._database, f"the file lock cannot be taken: {error}") from error
        try:
            yield True
        finally:
            self._lock.release()


class TranslatedErrors:
    """Raises errors of SQLite and the file system as SourceError, and a damaged page as DamagedError."""

    __slots__ = ("_path",)

    def __init__(self, path: Path) -> None:
        self._path = path

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, traceback: object) -> None:
        if isinstance(error, sqlite3.Error | OSError):
            code = sqlite3.SQLITE_FULL if getattr(error, "errno", 0) == errno.ENOSPC else 0
            code = getattr(error, "sqlite_errorcode", code) & 0xFF
            raised = DamagedError if is_corrupt(error) else SourceError
            raise raised(self._path, f"{error}{_ADVICE.get(code, '')}") from error


_ACCESS = "; the file and its folder have to be writable, also for reading: SQLite keeps the log beside the file"
_ADVICE = {
    sqlite3.SQLITE_CORRUPT: "; `memtrace-otel store check` names the damage; docs/guide/store.md: saving the rest",
    sqlite3.SQLITE_READONLY: _ACCESS,
    sqlite3.SQLITE_CANTOPEN: _ACCESS,
    sqlite3.SQLITE_BUSY: "; another process holds the write lock",
    sqlite3.SQLITE_FULL: "; free some megabytes of the disk first: deleting rows writes to the log, too",
    sqlite3.SQLITE_TOOBIG: f"; a value may have {_VALUE_BYTES >> 20} MiB",
}
"""By primary result code of SQLite."""


def is_busy(error: BaseException | None) -> bool:
    """Tell whether another process held the write lock."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_BUSY


def is_corrupt(error: BaseException | None) -> bool:
    """Tell whether SQLite found a damaged page."""
    return getattr(error, "sqlite_errorcode", 0) & 0xFF == sqlite3.SQLITE_CORRUPT


def pragma(connection: sqlite3.Connection, name: str) -> int:
    """Return the value of a setting or counter of SQLite."""
    return int(connection.execute(f"PRAGMA {name}").fetchone()[0])


def _is_blank(connection: sqlite3.Connection, path: Path) -> bool:
    try:
        tables = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
    except sqlite3.DatabaseError as error:
        if is_corrupt(error):
            raise SourceError(path, "the beginning of the file is damaged: restore a copy of the file") from error
        raise
    return tables == 0 and pragma(connection, "user_version") == 0


def _check_schema(connection: sqlite3.Connection, path: Path) -> None:
    if pragma(connection, "application_id") != APPLICATION_ID:
        raise SourceError(path, "a SQLite database, but not one of memtrace-otel")
    found = pragma(connection, "user_version")
    if found != VERSION:
        raise SourceError(
            path,
            f"the file has schema version {found}, this program needs version {VERSION}: give another file with --db,"
            " or use the version of memtrace-otel that wrote this file",
        )
    if not is_ours(connection):
        raise SourceError(
            path, f"the tables of the file are not those of schema version {VERSION}: the file is refused"
        )


def _create_tables(connection: sqlite3.Connection, busy_seconds: float) -> None:
    """Create the tables; if several processes try at once, one of them does."""
    deadline = time.monotonic() + busy_seconds
    while True:  # the switch to WAL does not wait for other connections
        try:
            connection.execute("PRAGMA journal_mode = WAL")
            break
        except sqlite3.OperationalError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)
    with transaction(connection):
        if connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0] == 0:
            for statement in STATEMENTS:
                connection.execute(statement)
