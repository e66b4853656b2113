"""The embedded database: can it be written, is it ours, what could not be read? No span is added or lost."""

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
from memtrace_otel.sources import SqliteStore, StoreError
from memtrace_otel.sources.connection import connect

_ELSEWHERE = "export MEMTRACE_DB=~/memtrace.db"
_LOCK_SECONDS = 1.0
_LEAST_FREE = 100 << 20


def check_database(database: Path) -> Iterator[Finding]:
    """The file, its folder and the lock on it."""
    database = database.absolute()
    folder = database.parent
    existing = next(path for path in (database, *database.parents) if path.exists())
    if not (_takes_files(existing) if existing != database else os.access(database, os.W_OK) and database.is_file()):
        yield problem("database", f"{database} cannot be written: see {existing}", _ELSEWHERE)
        return
    if not folder.is_dir():
        yield ok("database", f"{database} will be made")
        return
    free = shutil.disk_usage(folder).free
    if free < _LEAST_FREE:
        yield problem("disk", f"{free >> 20} MiB are left for {database}", _ELSEWHERE)
    if not database.exists():
        yield ok("database", f"{database} will be made")
        return
    try:
        with closing(connect(database, create=False, busy_seconds=_LOCK_SECONDS)) as connection:
            connection.execute("BEGIN IMMEDIATE")
            connection.execute("ROLLBACK")
    except sqlite3.OperationalError:
        yield problem(
            "database",
            f"another process has held the write lock of {database} for {_LOCK_SECONDS:g} s: exports wait, then fail",
            f"fuser -v {quote(str(database))}  # end the process that hangs",
        )
    except StoreError as error:
        yield problem("database", str(error), _ELSEWHERE)
    else:
        yield ok("database", f"{database} ({database.stat().st_size / 1e6:.1f} MB)")
        yield from _check_quarantine(database)


def _takes_files(folder: Path) -> bool:
    """Whether a file can be made there, tried with one that has no name: not where a file system says otherwise than
    its permissions do (/proc)."""
    try:
        TemporaryFile(dir=folder).close()
    except OSError:
        return False
    return True


def _check_quarantine(database: Path) -> Iterator[Finding]:
    with SqliteStore.open(database, create=False) as store:
        reasons = store.quarantined()
    if reasons:
        yield warning(
            "quarantine",
            f"{len(reasons)} requests could not be read: {reasons[-1]}",
            "memtrace-otel version  # the program's package may be newer",
        )
