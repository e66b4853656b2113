"""How much room the database takes, and giving back what it does not need."""

from __future__ import annotations

from sqlite3 import Connection

from memtrace_otel.store.connection import pragma, transaction
from memtrace_otel.store.upkeep import Compaction, StoreSize

_UNUSED_SOURCES = """
DELETE FROM source WHERE id NOT IN (SELECT source FROM span) AND id < (SELECT max(id) FROM source)
"""
"""The last row stays: its id would be given again, and processes remember sources by their ids."""


def size(connection: Connection) -> StoreSize:
    """Return the space in pages that hold something, and in pages that do not."""
    page, free = pragma(connection, "page_size"), pragma(connection, "freelist_count")
    return StoreSize((pragma(connection, "page_count") - free) * page, free * page)


def compact(connection: Connection) -> Compaction:
    """Write the database anew without its free pages, and empty the log."""
    before = size(connection)
    with transaction(connection):
        connection.execute(_UNUSED_SOURCES)
    connection.execute("VACUUM")
    finished = _empty_log(connection)
    after = size(connection)
    return Compaction(before.used + before.free - after.used - after.free, finished)


def _empty_log(connection: Connection) -> bool:
    """Copy the log into the file and cut it to nothing; False, at once, while another process needs it."""
    patience = pragma(connection, "busy_timeout")
    connection.execute("PRAGMA busy_timeout = 0")  # waiting for readers would keep writers waiting
    try:
        busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    finally:
        connection.execute(f"PRAGMA busy_timeout = {patience}")
    return not busy
