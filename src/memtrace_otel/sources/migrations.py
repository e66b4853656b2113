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

from memtrace_otel.otlp.decode import IndexedFields, indexed_fields
from memtrace_otel.sources.connection import pragma, transaction
from memtrace_otel.sources.errors import StoreError
from memtrace_otel.sources.lineage import HASH_BITS, PART_BITS, key_of
from memtrace_otel.sources.schema import PACKING_STATEMENTS, READER_TABLE, VERSION, WRITER_TABLE

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


def _read_lineage(connection: Connection) -> None:
    _empty_temporary(connection)
    _add_lineage(connection, 0)


def _index_lineage(connection: Connection) -> None:
    _add_lineage(connection, max(_last_read(connection, table) for table in _LINEAGE))  # what was decoded meanwhile
    _write_anew(connection)


def _read_keys(connection: Connection) -> None:
    _empty_temporary(connection)
    _add_keys(connection)


def _index_keys(connection: Connection) -> None:
    _add_keys(connection)
    _write_anew(connection)


def _empty_temporary(connection: Connection) -> None:
    for table in _LINEAGE:
        connection.execute(f"CREATE TEMP TABLE IF NOT EXISTS {table} (key INTEGER NOT NULL, span INTEGER NOT NULL)")
        connection.execute(f"DELETE FROM temp.{table}")


def _last_read(connection: Connection, table: str) -> int:
    return connection.execute(f"SELECT coalesce(max(span), 0) FROM temp.{table}").fetchone()[0]


def _write_anew(connection: Connection) -> None:
    for table, (name, definition) in _LINEAGE.items():
        connection.execute(f"DROP TABLE IF EXISTS main.{name}")
        connection.execute(definition)
        # A span may have been pruned meanwhile. In the order of the key the table is filled from beginning to end.
        connection.execute(
            f"INSERT OR IGNORE INTO main.{name} SELECT key, span FROM temp.{table}"
            " WHERE span IN (SELECT id FROM main.span) ORDER BY key, span"
        )
        connection.execute(f"DROP TABLE temp.{table}")


def _add_keys(connection: Connection) -> None:
    """Version 2 had the whole hash for a key, the part of the file not in front of it. Spans may be added between the
    two tables: what is left to read is asked for each."""
    for (table, (name, _)), column in zip(_LINEAGE.items(), ("origin", "ref"), strict=True):
        connection.execute(
            f"INSERT INTO temp.{table} SELECT span >> {PART_BITS} << {HASH_BITS} | ({column} & {(1 << HASH_BITS) - 1}),"
            f" span FROM main.{name} WHERE span > ?",
            (_last_read(connection, table),),
        )


def _add_lineage(connection: Connection, last: int) -> None:
    query = f"SELECT id, body FROM main.span WHERE id > ? ORDER BY id LIMIT {_PAGE}"
    while rows := connection.execute(query, (last,)).fetchall():
        found = [(id, fields) for id, body in rows if (fields := _fields(body))]
        reading = [(key_of(origin, id), id) for id, fields in found for origin in fields.origins]
        writing = [(key_of(ref, id), id) for id, fields in found for ref in fields.written]
        connection.executemany("INSERT INTO temp.reading VALUES (?, ?)", reading)
        connection.executemany("INSERT INTO temp.writing VALUES (?, ?)", writing)
        last = rows[-1][0]


def _fields(body: bytes) -> IndexedFields | None:
    try:
        return indexed_fields(body)
    except DecodeError:  # `check` names it
        return None


def _nothing(connection: Connection) -> None:
    pass


def _add_packing(connection: Connection) -> None:
    """Version 3 had dictionaries where something was packed, each made for all spans of its scope."""
    query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'dictionary'"
    was_packed = connection.execute(query).fetchone() is not None
    if was_packed:
        connection.execute("ALTER TABLE dictionary RENAME TO old_dictionary")
    for statement in PACKING_STATEMENTS:
        connection.execute(statement)
    if was_packed:
        connection.execute(f"INSERT INTO dictionary SELECT number, scope, {_MANY}, sample FROM old_dictionary")
        connection.execute("DROP TABLE old_dictionary")


_MANY = 1 << 20
_LINEAGE = {"reading": ("reader", READER_TABLE), "writing": ("writer", WRITER_TABLE)}
STEPS = {
    1: Step(_read_lineage, _index_lineage),
    2: Step(_read_keys, _index_keys),
    3: Step(_nothing, _add_packing),
    4: Step(_nothing, _nothing),  # bodies have checksums when they are packed; version 4 cannot read those
    5: Step(_nothing, _nothing),  # bodies have heads when they are packed; version 5 cannot read those
}
"""By the version that they start from."""
