"""A database file as schema version 2 wrote it, made of one of version 1: its two indexes of lineage as they were.

Not to be changed.
"""

from __future__ import annotations

import hashlib
import sqlite3
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from memtrace_otel.model import OperationSpan
from tests.unit.sources import version_1

READER = """CREATE TABLE reader (
    origin INTEGER NOT NULL, span INTEGER NOT NULL REFERENCES span (id), PRIMARY KEY (origin, span)
) WITHOUT ROWID"""
WRITER = READER.replace("reader", "writer").replace("origin", "ref")


def write(path: Path, spans: Sequence[OperationSpan], waiting: Sequence[OperationSpan] = ()) -> None:
    """As `version_1.write`."""
    version_1.write(path, spans, waiting)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DROP TABLE reader")
        connection.execute(READER)
        connection.execute(WRITER)
        for span in spans:
            ids = span.trace_id, span.span_id
            (id,) = connection.execute("SELECT id FROM span WHERE trace_id = ? AND span_id = ?", ids).fetchone()
            origins = {variable.origin for variable in span.inputs if variable.origin}
            refs = {variable.ref for variable in span.outputs}
            connection.executemany("INSERT INTO reader VALUES (?, ?)", [(key_of(name), id) for name in origins])
            connection.executemany("INSERT INTO writer VALUES (?, ?)", [(key_of(name), id) for name in refs])
        connection.execute("PRAGMA user_version = 2")
        connection.commit()


def key_of(name: str) -> int:
    """The number by which version 2 indexed a name."""
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "big", signed=True)
