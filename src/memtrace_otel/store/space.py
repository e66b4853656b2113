"""How much room the database takes, and giving back what it does not need."""

from __future__ import annotations

import time
from sqlite3 import Connection

from memtrace_otel.store.bodies import pack_spans
from memtrace_otel.store.connection import Locked, execute_patiently, pragma, transaction
from memtrace_otel.store.upkeep import Compaction, StoreSize

_LOG_SECONDS = 1.0
_LOOK_SECONDS = 0.001
_UNUSED_SOURCES = """
DELETE FROM source WHERE id NOT IN (SELECT source FROM span) AND id < (SELECT max(id) FROM source)
"""
"""The last row stays: its id would be given again, and processes remember sources by their ids."""


def size(connection: Connection) -> StoreSize:
    """Return the space in pages that hold something, and in pages that do not."""
    page, free = pragma(connection, "page_size"), pragma(connection, "freelist_count")
    return StoreSize((pragma(connection, "page_count") - free) * page, free * page)


def compact(locked: Locked) -> Compaction:
    """Pack the spans, write the database anew without its free pages, and empty the log."""
    with locked() as connection:
        before = size(connection)
    pack_spans(locked)
    with locked() as connection:
        with transaction(connection):
            connection.execute(_UNUSED_SOURCES)
        execute_patiently(connection, "VACUUM")
        finished = _empty_log(connection)
        after = size(connection)
    return Compaction(before.used + before.free - after.used - after.free, finished)


def _empty_log(connection: Connection) -> bool:
    """Copy the log into the file and cut it to nothing; False when other processes need it all the time.

    SQLite would wait for readers with the write lock in its hand: it is told not to, and asked again.
    """
    patience = pragma(connection, "busy_timeout")
    deadline = time.monotonic() + _LOG_SECONDS
    connection.execute("PRAGMA busy_timeout = 0")
    try:
        while connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
            if time.monotonic() > deadline:
                return False
            time.sleep(_LOOK_SECONDS)
    finally:
        connection.execute(f"PRAGMA busy_timeout = {patience}")
    return True
