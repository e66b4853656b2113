"""The embedded database: can it be written, is it ours, what could not be read? Nothing is changed."""

from __future__ import annotations

import os
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from shlex import quote

from memtrace_otel.doctor.finding import Finding, ok, problem, warning
from memtrace_otel.store import SqliteStore, StoreError
from memtrace_otel.store.connection import connect

_LOCK_SECONDS = 1.0
_LEAST_FREE = 100 << 20


def check_database(database: Path) -> Iterator[Finding]:
    """The file, its folder and the lock on it."""
    folder = database.parent
    if not folder.is_dir():
        existing = next(parent for parent in folder.parents if parent.exists())
        if not os.access(existing, os.W_OK):
            yield problem("database", f"{folder} does not exist and cannot be made", "export MEMTRACE_DB=~/memtrace.db")
        else:
            yield ok("database", f"{database} will be made")
        return
    if database.is_dir() or not os.access(database if database.exists() else folder, os.W_OK):
        reason = "is a folder" if database.is_dir() else "cannot be written"
        yield problem("database", f"{database} {reason}", "export MEMTRACE_DB=~/memtrace.db")
        return
    free = shutil.disk_usage(folder).free
    if free < _LEAST_FREE:
        yield problem("disk", f"{free >> 20} MiB are left for {database}", "export MEMTRACE_DB=...  # another disk")
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
        yield problem("database", str(error), "export MEMTRACE_DB=~/memtrace.db  # or give --db")
    else:
        yield ok("database", f"{database} ({database.stat().st_size / 1e6:.1f} MB)")
        yield from _check_quarantine(database)


def _check_quarantine(database: Path) -> Iterator[Finding]:
    with SqliteStore.open(database, create=False) as store:
        reasons = store.quarantined()
    if reasons:
        yield warning(
            "quarantine",
            f"{len(reasons)} requests could not be read: {reasons[-1]}",
            "memtrace-otel version  # the program's package may be newer",
        )
