"""Pages of a database that a disk has damaged."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path


def break_leaf(path: Path, table: str, number: int) -> None:
    """Make a leaf of a table or index unreadable, the first (0) or the last one (-1)."""
    with closing(sqlite3.connect(path)) as connection:
        query = "SELECT rootpage FROM sqlite_master WHERE name = ?"
        (root,) = connection.execute(query, (table,)).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    data = bytearray(path.read_bytes())
    begin = (root - 1) * size
    assert data[begin] in (5, 2), "an inner page"
    first = begin + int.from_bytes(data[begin + 12 : begin + 14], "big")
    place = {0: first, -1: begin + 8}[number]
    leaf = (int.from_bytes(data[place : place + 4], "big") - 1) * size
    assert data[leaf] in (13, 10), "a leaf"
    data[leaf : leaf + 8] = b"\x77" * 8
    path.write_bytes(data)
