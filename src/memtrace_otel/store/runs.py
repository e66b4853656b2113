"""Packs a file run by run, a few spans at a time in the order of their rows, and remembers in it how far it came.

The rows of a run are taken out and put in again: where a row only became shorter, its page would stay as it was, half
empty, and the file would not get smaller.
"""

from __future__ import annotations

from sqlite3 import Connection
from typing import NamedTuple

from memtrace_otel.store.bodies import Bodies, dictionary_for
from memtrace_otel.store.connection import Locked, transaction
from memtrace_otel.store.growing import GrowingTexts
from memtrace_otel.store.packing import NAMES, Packer, PackingError, dictionary_of, is_packable
from memtrace_otel.store.streams import use_streams

_ROWS = 64
_BYTES = 1 << 18
_PACKERS = 64
"""A third of a MiB each."""


class _Row(NamedTuple):
    id: int
    trace_id: str
    span_id: str
    name: str
    kind: str
    scope: str
    start: int
    source: int
    body: bytes


class RunPacker:
    """Packs through one connection. Several processes may do so at once: each run is packed by one."""

    def __init__(self, locked: Locked) -> None:
        self._locked = locked
        self._packers: dict[int, Packer] = {}
        self._growing: GrowingTexts | None = None

    def pack(self, last: int) -> int:
        """Pack the next run of rows up to `last`, in one transaction; return how many spans it has, 0 at the end."""
        with self._locked() as connection:
            if _packed_up_to(connection) >= last:
                return 0
            try:
                with transaction(connection):
                    return self._pack(connection, last)
            except BaseException:  # what is remembered may tell of what was taken back
                self._growing = None
                self._packers.clear()
                raise

    def _pack(self, connection: Connection, last: int) -> int:
        rows = _run(connection, _packed_up_to(connection), last)
        if any(dictionary_of(row.body) is None for row in rows):
            packed = [row if dictionary_of(row.body) is not None else self._packed(connection, row) for row in rows]
            query = "DELETE FROM span WHERE id BETWEEN ? AND ?"
            connection.execute(query, (rows[0].id, rows[-1].id))
            connection.executemany("INSERT INTO span VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", packed)
        connection.execute("UPDATE packing SET up_to = ?", (rows[-1].id if rows else last,))
        return len(rows)

    def _packed(self, connection: Connection, row: _Row) -> _Row:
        if not is_packable(row.body):
            return row
        growing = self._growing = self._growing or GrowingTexts(connection)
        cuts = growing.cuts(row.body)
        use_streams(connection, row.id, cuts)
        return row._replace(body=self._packer(connection, row.scope).pack(row.body, cuts))

    def _packer(self, connection: Connection, scope: str) -> Packer:
        number = dictionary_for(connection, scope)
        packer = self._packers.pop(number, None)
        if packer is None:
            try:
                packer = Packer(number, Bodies(connection).sample(number))
            except PackingError:  # `check` names it
                packer = Packer(NAMES, b"")
            if len(self._packers) >= _PACKERS:
                del self._packers[next(iter(self._packers))]
        self._packers[number] = packer
        return packer


def drop_unused_dictionaries(connection: Connection) -> None:
    """Throw the dictionaries of scopes that are gone away."""
    connection.execute("DELETE FROM dictionary WHERE scope NOT IN (SELECT scope FROM span)")


def _packed_up_to(connection: Connection) -> int:
    return int(connection.execute("SELECT up_to FROM packing").fetchone()[0])


def _run(connection: Connection, after: int, last: int) -> list[_Row]:
    rows: list[_Row] = []
    size = 0
    cursor = connection.execute("SELECT * FROM span WHERE id > ? AND id <= ? ORDER BY id LIMIT ?", (after, last, _ROWS))
    for found in cursor:
        rows.append(_Row(*found))
        size += len(rows[-1].body)
        if size >= _BYTES:
            break
    cursor.close()
    return rows
