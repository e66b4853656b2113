"""A database file as schema version 5 wrote it, made of one of version 4: packed bodies with checksums, without heads.
Not to be changed.
"""

from __future__ import annotations

import sqlite3
import zlib
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from memtrace_otel.model import OperationSpan
from tests.unit.sources import version_4


def write(path: Path, spans: Sequence[OperationSpan], waiting: Sequence[OperationSpan] = ()) -> None:
    """As `version_1.write`."""
    version_4.write(path, spans, waiting)
    _raise(path)


def write_packed(path: Path, spans: Sequence[OperationSpan], waiting: Sequence[OperationSpan] = ()) -> None:
    """As `version_4.write_packed`, each packed body with its checksum."""
    version_4.write_packed(path, spans, waiting)
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT id, body FROM span WHERE substr(body, 1, 1) IN (x'01', x'02')"
        for id, body in connection.execute(query).fetchall():
            kind, number, rest = body[0] + 2, body[1:5], body[5:]
            content = number.lstrip(b"\0") + rest
            packed = bytes((kind,)) + zlib.crc32(content, kind).to_bytes(4, "big") + content
            connection.execute("UPDATE span SET body = ? WHERE id = ?", (packed, id))
        connection.commit()
    _raise(path)


def _raise(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 5")
        connection.commit()
