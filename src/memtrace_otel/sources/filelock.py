"""File locks beside a database: one process at a time works on the verdicts of a file, one server counts its spans.

SQLite's own locks do not fit: no other process could write while a receiver of verdicts takes its time.
"""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from filelock import FileLock, Timeout

from memtrace_otel.sources.errors import StoreError


class DatabaseLock:
    """An advisory lock on a file beside a database. The system releases the lock when its owner dies.

    Threads of one process exclude each other; one thread may take the lock several times. `suffix` is that of the
    locked file: locks of different suffixes are independent.
    """

    def __init__(self, database: Path, suffix: str = "-lock") -> None:
        database = database.resolve()  # like SQLite, which puts its log beside the target of a link
        self._database = database
        self._lock = FileLock(database.with_name(database.name + suffix), mode=0o600)

    @contextmanager
    def held(self, *, wait: bool = True) -> Generator[bool]:
        """Hold the lock. Yields False, without the lock, when another owner has it and `wait` is false.

        Raises StoreError when the file cannot be locked.
        """
        try:
            self._lock.acquire(timeout=-1 if wait else 0)
        except Timeout:
            yield False
            return
        except OSError as error:
            raise StoreError(self._database, f"the file lock cannot be taken: {error}") from error
        try:
            yield True
        finally:
            self._lock.release()
