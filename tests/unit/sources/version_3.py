"""A database file as schema version 3 wrote it, made of one of version 2: the keys of its indexes, and what it packed.

Not to be changed.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from memtrace_otel.model import OperationSpan
from tests.unit.sources import version_2

DICTIONARY = """CREATE TABLE dictionary (
    number INTEGER PRIMARY KEY AUTOINCREMENT, scope TEXT NOT NULL, sample BLOB NOT NULL
)"""
SAMPLE = b"what spans of this memory say"


def write(path: Path, spans: Sequence[OperationSpan], waiting: Sequence[OperationSpan] = ()) -> None:
    """As `version_1.write`."""
    version_2.write(path, spans, waiting)
    with closing(sqlite3.connect(path)) as connection:
        for table, column in (("reader", "origin"), ("writer", "ref")):
            key = f"span >> 15 << 40 | ({column} & {(1 << 40) - 1})"
            connection.execute(f"CREATE TEMP TABLE anew AS SELECT {key}, span FROM {table}")
            connection.execute(f"DELETE FROM {table}")
            connection.execute(f"INSERT INTO {table} SELECT * FROM anew")
            connection.execute("DROP TABLE anew")
        connection.execute("PRAGMA user_version = 3")
        connection.commit()


def write_packed(path: Path, spans: Sequence[OperationSpan], waiting: Sequence[OperationSpan] = ()) -> None:
    """As `write`, and the bodies are packed with a dictionary; ids in hex digits are left."""
    write(path, spans, waiting)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(DICTIONARY)
        (scope,) = connection.execute("SELECT max(scope) FROM span").fetchone()
        connection.execute("INSERT INTO dictionary (scope, sample) VALUES (?, ?)", (scope, zlib.compress(SAMPLE)))
        rows = connection.execute("SELECT id, body FROM span WHERE scope = ?", (scope,)).fetchall()
        for id, body in rows:
            deflate = zlib.compressobj(9, zlib.DEFLATED, -15, 9, 0, SAMPLE)
            rest = body[28:].replace(b"\xff", b"\xff\0")
            packed = b"\x01" + (1).to_bytes(4, "big") + deflate.compress(rest) + deflate.flush()
            connection.execute("UPDATE span SET body = ? WHERE id = ?", (packed, id))
        connection.commit()
