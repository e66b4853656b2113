"""Check of the embedded database file: place, schema, write lock and quarantine. The check adds and removes nothing."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from shlex import quote
from tempfile import TemporaryFile

from memtrace_otel.doctor.finding import Finding, ok, problem, warning
from memtrace_otel.sources import SourceError, SqliteStore
from memtrace_otel.sources.database import connect

_ELSEWHERE = "export MEMTRACE_DB=~/memtrace.db"
_LOCK_SECONDS = 1.0
_LEAST_FREE_BYTES = 100 << 20


def check_database(database: Path) -> Iterator[Finding]:
    """Check the file, its folder and the write lock."""
    database = database.absolute()
    existing = next(path for path in (database, *database.parents) if path.exists())
    writable = _takes_files(existing) if existing != database else database.is_file() and os.access(database, os.W_OK)
    if not writable:
        yield problem("database", f"{database} cannot be written: see {existing}", _ELSEWHERE)
        return
    folder = existing if existing.is_dir() else existing.parent
    if (free := shutil.disk_usage(folder).free) < _LEAST_FREE_BYTES:
        yield problem("disk", f"{free >> 20} MiB are free for {database}", _ELSEWHERE)
    if not database.exists():
        yield ok("database", f"{database} does not exist yet; the next run makes the file")
        return
    try:
        with closing(connect(database, create=False, busy_seconds=_LOCK_SECONDS)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
    except sqlite3.OperationalError:
        found = f"another process has held the write lock of {database} for {_LOCK_SECONDS:g} s"
        yield problem("database", found, f"fuser -v {quote(str(database))}  # names the process")
    except SourceError as error:
        yield problem("database", str(error), _ELSEWHERE)
    else:
        yield ok("database", f"{database} ({database.stat().st_size / 1e6:.1f} MB)")
        with SqliteStore.open(database, create=False) as store:
            reasons = store.quarantined()
        if reasons:
            remedy = "memtrace-otel version  # the package of the program may be newer"
            yield warning("quarantine", f"{len(reasons)} requests could not be read: {reasons[-1]}", remedy)


def _takes_files(folder: Path) -> bool:
    """Tell whether a nameless file can be made: some file systems (/proc) refuse files that their modes allow."""
    try:
        TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True
