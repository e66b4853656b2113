"""How much room the database takes, and giving back what it does not need."""

from __future__ import annotations

import io
import os
import tempfile
import time
from contextlib import suppress
from sqlite3 import Connection
from typing import IO

from memtrace_otel.sources.connection import (
    INCREMENTAL,
    Locked,
    copy_log_every,
    execute_patiently,
    file_of,
    pragma,
    transaction,
    unsynced,
)
from memtrace_otel.sources.errors import StoreError
from memtrace_otel.sources.runs import RunPacker, drop_unused_dictionaries
from memtrace_otel.sources.upkeep import Compaction, StoreSize

_LOG_SECONDS = 1.0
_LOOK_SECONDS = 0.001
_PAUSE_SECONDS = 0.003
_PAGES = 64
_KEPT_PAGES, _KEPT_SHARE = 16, 256
"""Free pages that are kept: so many, or one of so many in the file."""
_RESERVE_BYTES = 1 << 20
"""Of the disk, at most, held back while the file is written anew; of a smaller file its size."""
_LOG_PAGES = 256
"""Copied into the file each time, then: what packing adds to the file has to find room in the reserve."""
_UNUSED_SOURCES = """
DELETE FROM source WHERE id NOT IN (SELECT source FROM span) AND id < (SELECT max(id) FROM source)
"""
"""The last row stays: its id would be given again, and processes remember sources by their ids."""


def size(connection: Connection) -> StoreSize:
    """Return the space in pages that hold something, and in pages that do not."""
    page, free = pragma(connection, "page_size"), pragma(connection, "freelist_count")
    return StoreSize((pragma(connection, "page_count") - free) * page, free * page)


def compact(locked: Locked) -> Compaction:
    """Pack the spans, write the database anew without its free pages, and empty the log.

    On a disk that becomes full meanwhile the log has taken what was free, and cannot be emptied while the file needs
    one page more. So some room is held back, and given to that: what was free is free again when this raises.
    """
    with locked() as connection:
        before = size(connection)
        log_pages = pragma(connection, "wal_autocheckpoint")
        reserve = _reserve(connection)
        copy_log_every(connection, _LOG_PAGES)
    try:
        pack_all(locked)
        with locked() as connection:
            with transaction(connection):
                connection.execute(_UNUSED_SOURCES)
                drop_unused_dictionaries(connection)
            connection.execute(f"PRAGMA auto_vacuum = {INCREMENTAL}")  # also in a file that was made without
            execute_patiently(connection, "VACUUM")
            finished = _empty_log(connection)
            after = size(connection)
    except StoreError:
        reserve.close()
        with suppress(StoreError), locked() as connection:
            _empty_log(connection)
        raise
    finally:
        reserve.close()
        with locked() as connection:
            copy_log_every(connection, log_pages)
    return Compaction(before.used + before.free - after.used - after.free, finished)


def _reserve(connection: Connection) -> IO[bytes]:
    """Return a file without a name that takes room beside the database until it is closed; as much as there is."""
    used = size(connection).used
    try:
        file = tempfile.TemporaryFile(dir=file_of(connection).parent, buffering=0)  # noqa: SIM115
    except OSError:  # a folder that takes no new file
        return io.BytesIO()
    with suppress(OSError):
        left = os.urandom(min(_RESERVE_BYTES, used))  # zeros take no room everywhere
        while left:
            left = left[file.write(left) :]
    return file


def pack_all(locked: Locked) -> None:
    """Pack what is not packed yet, in short transactions; between two of them other writers get their turn."""
    packer = RunPacker(locked)
    with locked() as connection:
        last = last_row(connection)
    while True:
        taken = time.monotonic()
        with locked() as connection, unsynced(connection):
            if not packer.pack(last):
                return
        time.sleep(max(_PAUSE_SECONDS, time.monotonic() - taken))


def last_row(connection: Connection) -> int:
    """Return the highest row of a span, 0 when there is none."""
    return int(connection.execute("SELECT coalesce(max(id), 0) FROM span").fetchone()[0])


def give_back(locked: Locked) -> bool:
    """Give some free pages back to the file system, in one short transaction; False when that is not worth it.

    Some are kept for what comes next. A file that was made by a version that could not do this has to be compacted
    first.
    """
    with locked() as connection:
        free = pragma(connection, "freelist_count")
        unwanted = free - max(_KEPT_PAGES, pragma(connection, "page_count") // _KEPT_SHARE)
        if unwanted <= 0:
            return False
        if pragma(connection, "auto_vacuum") != INCREMENTAL:
            return False
        with unsynced(connection), transaction(connection):
            for _ in range(min(_PAGES, unwanted)):
                connection.execute("PRAGMA incremental_vacuum(1)")
        return True


def settle(locked: Locked) -> None:
    """Copy the log into the file, and empty it when nobody needs it just now. Neither waits for others."""
    with locked() as connection:
        connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
        _empty_log(connection, seconds=0.0)


def _empty_log(connection: Connection, seconds: float = _LOG_SECONDS) -> bool:
    """Copy the log into the file and cut it to nothing; False when other processes need it all the time.

    SQLite would wait for readers with the write lock in its hand: it is told not to, and asked again.
    """
    patience = pragma(connection, "busy_timeout")
    deadline = time.monotonic() + seconds
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        while connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_SECONDS)
    finally:
        connection.execute(f"PRAGMA busy_timeout = {patience}")
    return True
