"""What was concluded and what was sent: verdicts and sent span ids.

The newest verdict is the one that was saved last: a clock that was set back must not bring an older one to the fore.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from sqlite3 import Connection

from memtrace_otel.sources.connection import transaction
from memtrace_otel.sources.protocols import StoredVerdict

_COLUMNS = "answer, attribution_id, document, created"


def save_verdict(connection: Connection, answer: str, attribution_id: str, document: str) -> bool:
    """Insert a verdict unless its attribution id is known; return whether it was inserted."""
    inserted = connection.execute(
        f"INSERT OR IGNORE INTO verdict ({_COLUMNS}) VALUES (?, ?, ?, ?)",
        (answer, attribution_id, document, time.time_ns()),
    )
    return inserted.rowcount > 0


def verdict(connection: Connection, answer: str) -> StoredVerdict | None:
    """Return the newest verdict on `answer`."""
    row = connection.execute(
        f"SELECT {_COLUMNS} FROM verdict WHERE answer = ? ORDER BY rowid DESC LIMIT 1", (answer,)
    ).fetchone()
    return StoredVerdict(*row) if row else None


def verdicts(connection: Connection, trace_id: str = "") -> list[StoredVerdict]:
    """Return the newest verdict on every answer, or on those of a trace, oldest first."""
    newest: dict[str, StoredVerdict] = {}
    of_trace = "WHERE answer BETWEEN :trace || '-' AND :trace || '-g'" if trace_id else ""
    for row in connection.execute(f"SELECT {_COLUMNS} FROM verdict {of_trace} ORDER BY rowid", {"trace": trace_id}):
        newest.pop(row[0], None)  # its place is that of the newest
        newest[row[0]] = StoredVerdict(*row)
    return list(newest.values())


def withdraw(connection: Connection, attribution_ids: Iterable[str]) -> None:
    """Remove verdicts and those that they replaced, not one that has replaced them meanwhile."""
    with transaction(connection):
        for id in attribution_ids:
            connection.execute(
                "DELETE FROM verdict WHERE (answer, rowid) IN (SELECT old.answer, old.rowid FROM verdict AS old"
                " JOIN verdict AS given USING (answer) WHERE given.attribution_id = ? AND old.rowid <= given.rowid)",
                (id,),
            )


def unsent(connection: Connection, target: str, span_ids: Iterable[str]) -> list[str]:
    """Return the ids not yet sent to `target`, each once."""
    query = "SELECT 1 FROM sent WHERE target = ? AND span_id = ?"
    return [id for id in dict.fromkeys(span_ids) if connection.execute(query, (target, id)).fetchone() is None]


def has_sent(connection: Connection, target: str) -> bool:
    """Tell whether anything was ever sent to `target`."""
    return connection.execute("SELECT 1 FROM sent WHERE target = ? LIMIT 1", (target,)).fetchone() is not None


def mark_sent(connection: Connection, target: str, span_ids: Iterable[str]) -> None:
    """Insert the ids as sent to `target` now."""
    now = time.time_ns()
    with transaction(connection):
        connection.executemany(
            "INSERT OR IGNORE INTO sent (target, span_id, sent_at) VALUES (?, ?, ?)",
            [(target, id, now) for id in span_ids],
        )
