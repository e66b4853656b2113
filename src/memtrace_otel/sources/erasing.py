"""A `forget` under way, as the file knows it: one that was interrupted is taken up where it was left.

The table is there for that time only. It holds the key of the renaming, without which equal ids would become different
ones in two attempts; the spans that were erased, which must not be renamed twice; their references to whole contents.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Iterable
from sqlite3 import Connection

from memtrace_otel.sources.connection import transaction
from memtrace_otel.sources.erasure import Rename, renaming

_TABLE = """CREATE TABLE IF NOT EXISTS erasing (
    scope TEXT NOT NULL, span INTEGER NOT NULL, note TEXT NOT NULL, PRIMARY KEY (scope, span)
) WITHOUT ROWID"""
_KEY = 0
"""No span has this row id: its note is the key, that of a span the references it had, as JSON."""


class Erasing:
    """The erasure of one scope. All methods but `begin` are called inside a transaction."""

    def __init__(self, scope: str, rename: Rename) -> None:
        self._scope = scope
        self.rename = rename

    @classmethod
    def begin(cls, connection: Connection, scope: str) -> Erasing:
        """Start, or go on with what an earlier attempt began."""
        with transaction(connection):
            connection.execute(_TABLE)
            insert = "INSERT OR IGNORE INTO erasing VALUES (?, ?, ?)"
            connection.execute(insert, (scope, _KEY, secrets.token_hex(16)))
            query = "SELECT note FROM erasing WHERE scope = ? AND span = ?"
            (key,) = connection.execute(query, (scope, _KEY)).fetchone()
        return cls(scope, renaming(key))

    def left(self, connection: Connection, ids: Iterable[int]) -> list[int]:
        """Return those of the spans that are still to be erased; none when another process ended this erasure."""
        if self._scope not in unfinished(connection):
            return []
        query = "SELECT 1 FROM erasing WHERE scope = ? AND span = ?"
        return [id for id in ids if connection.execute(query, (self._scope, id)).fetchone() is None]

    def done(self, connection: Connection, id: int, references: list[str]) -> None:
        """Remember that a span was erased."""
        connection.execute("INSERT INTO erasing VALUES (?, ?, ?)", (self._scope, id, json.dumps(references)))

    def end(self, connection: Connection) -> tuple[str, ...]:
        """Throw the key away; return the references of all spans that were erased, each once."""
        if self._scope not in unfinished(connection):
            return ()
        query = "SELECT note FROM erasing WHERE scope = ? AND span <> ? ORDER BY span"
        notes = connection.execute(query, (self._scope, _KEY)).fetchall()
        connection.execute("DELETE FROM erasing WHERE scope = ?", (self._scope,))
        if not unfinished(connection):
            connection.execute("DROP TABLE erasing")
        return tuple(dict.fromkeys(reference for (note,) in notes for reference in json.loads(note)))


def unfinished(connection: Connection) -> list[str]:
    """Return the scopes whose erasure was begun and not ended."""
    if connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'erasing'").fetchone() is None:
        return []
    return [scope for (scope,) in connection.execute("SELECT scope FROM erasing WHERE span = ?", (_KEY,))]
