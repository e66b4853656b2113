"""Files of older versions become files of this one: step by step, forward only, each step whole or not at all.

Only the inbox has to be the same in every version: an exporter in an observed program adds to it whatever the version,
and never migrates. Everybody else migrates when opening.
"""

from __future__ import annotations

import logging
import sqlite3
from collections.abc import Callable
from pathlib import Path
from sqlite3 import Connection
from typing import NamedTuple

from google.protobuf.message import DecodeError
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from memtrace_otel.otlp.decode import indexed_fields
from memtrace_otel.store.connection import pragma, transaction
from memtrace_otel.store.errors import StoreError
from memtrace_otel.store.rows import ref_key
from memtrace_otel.store.schema import VERSION, WRITER_TABLE

_logger = logging.getLogger(__name__)
_PAGE = 1000


class Step(NamedTuple):
    """From one version to the next. `prepare` does the long work in temporary tables, while others go on writing;
    `apply` changes the file, in one transaction with its version."""

    prepare: Callable[[Connection], None]
    apply: Callable[[Connection], None]


def migrate(connection: Connection, path: Path) -> None:
    """Bring the file to `VERSION`; of several processes that try at once one does each step, the others wait.

    Raises StoreError when that cannot be done; the file is then of the version that it had, or of one in between.
    """
    while (found := pragma(connection, "user_version")) < VERSION:
        _logger.info("%s: schema version %d becomes %d", path, found, found + 1)
        step = STEPS[found]
        try:
            step.prepare(connection)
            with transaction(connection):
                if pragma(connection, "user_version") == found:
                    step.apply(connection)
                    connection.execute(f"PRAGMA user_version = {found + 1}")
        except sqlite3.Error as error:
            reason = f"schema version {found} could not be brought to {VERSION}, which this program needs: {error}"
            raise StoreError(path, reason) from error


def _read_writers(connection: Connection) -> None:
    connection.execute("CREATE TEMP TABLE IF NOT EXISTS written (ref INTEGER NOT NULL, span INTEGER NOT NULL)")
    connection.execute("DELETE FROM temp.written")
    _add_writers(connection, 0)


def _index_writers(connection: Connection) -> None:
    connection.execute(WRITER_TABLE)
    (last,) = connection.execute("SELECT coalesce(max(span), 0) FROM temp.written").fetchone()
    _add_writers(connection, last)  # what was decoded meanwhile
    # A span may have been pruned meanwhile. In the order of the key the table is filled from its beginning to its end.
    connection.execute(
        "INSERT OR IGNORE INTO writer SELECT ref, span FROM temp.written"
        " WHERE span IN (SELECT id FROM main.span) ORDER BY ref, span"
    )
    connection.execute("DROP TABLE temp.written")


def _add_writers(connection: Connection, last: int) -> None:
    query = f"SELECT id, body FROM main.span WHERE id > ? ORDER BY id LIMIT {_PAGE}"
    while rows := connection.execute(query, (last,)).fetchall():
        connection.executemany("INSERT INTO temp.written VALUES (?, ?)", [pair for row in rows for pair in _keys(*row)])
        last = rows[-1][0]


def _keys(id: int, body: bytes) -> list[tuple[int, int]]:
    try:
        return [(ref_key(ref), id) for ref in indexed_fields(Span.FromString(body)).written]
    except DecodeError:  # `check` names it
        return []


STEPS = {1: Step(_read_writers, _index_writers)}
"""By the version that they start from."""
