"""A database file as schema version 4 wrote it, made of one of version 3: bodies without checksums, of which some have
a text cut out. Not to be changed.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from memtrace_otel.model import OperationSpan
from tests.unit.sources import version_3

STATEMENTS = (
    """CREATE TABLE dictionary (
        number INTEGER PRIMARY KEY AUTOINCREMENT, scope TEXT NOT NULL, spans INTEGER NOT NULL, sample BLOB NOT NULL
    )""",
    "CREATE INDEX dictionary_scope ON dictionary (scope, number, spans)",
    "CREATE TABLE stream (id INTEGER PRIMARY KEY AUTOINCREMENT, head INTEGER, size INTEGER NOT NULL)",
    "CREATE INDEX stream_head ON stream (head)",
    "CREATE TABLE piece (id INTEGER PRIMARY KEY, text BLOB NOT NULL)",
    """CREATE TABLE stream_use (
        span INTEGER NOT NULL, stream INTEGER NOT NULL, size INTEGER NOT NULL, PRIMARY KEY (span, stream)
    ) WITHOUT ROWID""",
    "CREATE INDEX stream_use_size ON stream_use (stream, size)",
    "CREATE TABLE packing (up_to INTEGER NOT NULL)",
    "INSERT INTO packing VALUES (0)",
    "PRAGMA user_version = 4",
)
BEGIN, SIZE = 30, 40
"""What is cut out of bodies."""


def write(path: Path, spans: Sequence[OperationSpan], waiting: Sequence[OperationSpan] = ()) -> None:
    """As `version_1.write`."""
    version_3.write(path, spans, waiting)
    with closing(sqlite3.connect(path)) as connection:
        for statement in STATEMENTS:
            connection.execute(statement)
        connection.commit()


def write_packed(path: Path, spans: Sequence[OperationSpan], waiting: Sequence[OperationSpan] = ()) -> None:
    """As `write`; the bodies of one memory are packed with a dictionary, each second one without the first bytes of
    a stream."""
    write(path, spans, waiting)
    with closing(sqlite3.connect(path)) as connection:
        (scope,) = connection.execute("SELECT max(scope) FROM span").fetchone()
        sample = zlib.compress(version_3.SAMPLE)
        connection.execute("INSERT INTO dictionary (scope, spans, sample) VALUES (?, 9, ?)", (scope, sample))
        rows = connection.execute("SELECT id, body FROM span WHERE scope = ?", (scope,)).fetchall()
        for id, body in rows:
            head, rest = b"\x01\0\0\0\x01", body[28:]
            if id % 2:
                head = b"\x02\0\0\0\x01" + bytes((1, BEGIN, SIZE, id))
                rest = body[28:BEGIN] + body[BEGIN + SIZE :]
                piece = zlib.compress(body[BEGIN : BEGIN + SIZE])
                connection.execute("INSERT INTO stream VALUES (?, NULL, ?)", (id, SIZE))
                connection.execute("INSERT INTO piece VALUES (?, ?)", (id << 24, piece))
                connection.execute("INSERT INTO stream_use VALUES (?, ?, ?)", (id, id, SIZE))
            deflate = zlib.compressobj(9, zlib.DEFLATED, -15, 9, 0, version_3.SAMPLE)
            packed = head + deflate.compress(rest.replace(b"\xff", b"\xff\0")) + deflate.flush()
            connection.execute("UPDATE span SET body = ? WHERE id = ?", (packed, id))
        connection.commit()
