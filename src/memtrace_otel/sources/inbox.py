"""The inbox: bodies are committed as received, then turned into rows in short transactions.

Reading a body costs far more than storing it, and SQLite has one writer; so a batch is read before the write lock is
taken. Several processes may work on the same batch: the one that deletes a body from the inbox inserts its rows.

A body is read as a whole, which takes about eight times its size of memory, and no batch has more than `BATCH_BYTES`
before its last body: what a process holds is bounded by the largest request taken (20 MiB by default: 160 MiB).
"""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Iterable
from dataclasses import dataclass

from memtrace_otel.sources.connection import transaction
from memtrace_otel.sources.rows import NewSpan, insert_rows, read_request

BATCH_BODIES = 256
BATCH_BYTES = 2 << 20
_WAITING = "SELECT coalesce(sum(length(body)), 0), coalesce(min(received), 0) FROM inbox"


def add_bodies(connection: sqlite3.Connection, bodies: Iterable[bytes]) -> None:
    """Commit bodies to the inbox, all or none."""
    received = time.time_ns()
    with transaction(connection):
        connection.executemany(
            "INSERT INTO inbox (body, received) VALUES (?, ?)", ((body, received) for body in bodies)
        )


@dataclass(frozen=True, slots=True)
class Batch:
    """What became of some bodies: the spans that are new to the store, and how many requests or parts of one were set
    aside as unreadable. The rows of the spans are consecutive; `last` is the highest, 0 without any."""

    spans: list[NewSpan]
    quarantined: int
    last: int = 0


def waiting(connection: sqlite3.Connection) -> tuple[int, int]:
    """Return the size of all bodies that wait, and when the oldest came (ns since the epoch, 0 when none waits)."""
    return connection.execute(_WAITING).fetchone()


def drain_batch(connection: sqlite3.Connection, most_bytes: int = BATCH_BYTES) -> Batch | None:
    """Turn the oldest waiting bodies into rows; None when nothing waits."""
    batch = _oldest(connection, most_bytes)
    if not batch:
        return None
    read = [(id, received, *read_request(body)) for id, body, received in batch]
    new: dict[int, NewSpan] = {}
    quarantined = 0
    with transaction(connection):
        for id, received, rows, rejected in read:
            if connection.execute("DELETE FROM inbox WHERE id = ?", (id,)).rowcount == 0:
                continue  # another process was faster
            new |= insert_rows(connection, rows)
            quarantined += len(rejected)
            connection.executemany(
                "INSERT INTO quarantine (body, reason, received) VALUES (?, ?, ?)",
                [(part.body, part.reason, received) for part in rejected],
            )
    return Batch(list(new.values()), quarantined, max(new, default=0))


def _oldest(connection: sqlite3.Connection, most_bytes: int) -> list[tuple[int, bytes, int]]:
    batch: list[tuple[int, bytes, int]] = []
    size = 0
    cursor = connection.execute("SELECT id, body, received FROM inbox ORDER BY id LIMIT ?", (BATCH_BODIES,))
    for id, body, received in cursor:
        batch.append((id, body, received))
        size += len(body)
        if size >= most_bytes:
            break
    cursor.close()  # an open cursor would keep this snapshot and the write would be refused
    return batch
