"""Of all processes that work on the verdicts of one file, one at a time has the turn; of its servers one counts.

It is an advisory lock on a file beside the database, which the system gives free when its owner dies, however it does.
SQLite's own locks would not do: no other process could write while a receiver takes its time.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path

try:
    import fcntl
except ImportError:  # Windows: every process has its turn at any time
    fcntl = None  # type: ignore[assignment]

from memtrace_otel.sources.connection import TranslatedErrors


class Turn:
    """The turn at one database, as one process sees it. May be shared by threads, not across a fork.

    `suffix` is that of the locked file: turns of different suffixes have nothing to do with each other.
    """

    def __init__(self, database: Path, suffix: str = "-turn") -> None:
        database = database.resolve()  # like SQLite, which names its log by what a link leads to
        self._database = database
        self._path = database.with_name(database.name + suffix)
        self._errors = TranslatedErrors(database)
        self._thread = threading.RLock()
        self._taken = 0

    @contextmanager
    def taken(self, *, wait: bool) -> Generator[bool]:
        """Have the turn, also within itself. Yields False when it is another's and is not waited for.

        Raises StoreError when there can be no lock.
        """
        if not self._thread.acquire(blocking=wait):
            yield False
            return
        descriptor = -1
        try:
            if not self._taken and fcntl is not None:
                with self._errors:
                    descriptor = self._lock(wait)
                if descriptor < 0:
                    yield False
                    return
            self._taken += 1
            try:
                yield True
            finally:
                self._taken -= 1
        finally:
            if descriptor >= 0:
                with suppress(OSError):
                    self._path.unlink()
                os.close(descriptor)
            self._thread.release()

    def _open(self) -> int:
        """Open the file; make it when it is missing, for all who may write the database: who is killed leaves it.
        What is there, or a link leads to, is left as it is."""
        try:
            descriptor = os.open(self._path, os.O_RDONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except FileExistsError:
            return os.open(self._path, os.O_RDONLY | os.O_CLOEXEC)
        with suppress(OSError):
            database = self._database.stat()
            os.fchmod(descriptor, database.st_mode & 0o777)
            os.fchown(descriptor, database.st_uid, database.st_gid)
        return descriptor

    def _lock(self, wait: bool) -> int:
        """Return a descriptor of the locked file, -1 when another has it."""
        assert fcntl is not None
        while True:
            try:
                descriptor = self._open()
            except FileNotFoundError:
                if self._path.is_symlink() or not self._path.parent.exists():
                    raise
                continue  # its owner has just removed it
            locked = False
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
                locked = os.fstat(descriptor).st_nlink > 0  # else its owner has just removed it
            except BlockingIOError:
                return -1
            finally:
                if not locked:
                    os.close(descriptor)
            if locked:
                return descriptor
