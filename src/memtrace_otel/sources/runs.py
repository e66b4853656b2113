"""Packs a file run by run, a few spans at a time in the order of their rows, and remembers in it how far it came.

The rows of a run are taken out and put in again: where a row only became shorter, its page would stay as it was, half
empty, and the file would not get smaller.
"""

from __future__ import annotations

from sqlite3 import Connection, DatabaseError
from typing import NamedTuple

from memtrace_otel.sources.bodies import UNDECODABLE, Bodies, dictionary_for
from memtrace_otel.sources.connection import Locked, is_corrupt, transaction
from memtrace_otel.sources.growing import GrowingTexts
from memtrace_otel.sources.packing import NAMES, Packer, PackingError, is_packable, is_packed
from memtrace_otel.sources.streams import use_streams

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
        self._made = False

    def pack(self, last: int) -> int:
        """Pack the next run of rows up to `last`, in one transaction; return how many spans it has, 0 at the end."""
        with self._locked() as connection:
            if connection.execute(_IS_DONE, (last,)).fetchone()[0]:
                return 0
            try:
                return self._in_transaction(connection, last)
            except DatabaseError as error:
                if not is_corrupt(error):
                    raise
            # A page of the streams, perhaps: SQLite lets nothing be written in a transaction that met it.
            return self._in_transaction(connection, last, cut=False)

    def _in_transaction(self, connection: Connection, last: int, *, cut: bool = True) -> int:
        try:
            with transaction(connection):
                return self._pack(connection, last, cut)
        except BaseException as error:  # what is remembered may tell of what was taken back
            self._growing = None
            self._packers.clear()
            if isinstance(error, UNDECODABLE):
                reason = f"packing met a damaged row ({type(error).__name__}); `memtrace-otel store check` names it"
                raise DatabaseError(reason) from error
            raise

    def _pack(self, connection: Connection, last: int, cut: bool) -> int:
        self._made = False
        packed: list[_Row] = []
        changed = False
        seen, up_to = 0, last
        for row in _run(connection, last):
            seen, up_to = seen + 1, row.id
            if not _is_sound(row):  # it stays where it is, `check` names it
                continue
            if not is_packed(row.body):
                row, changed = self._packed(connection, row, cut), True
            packed.append(row)
            if self._made:  # that took as long as packing many spans: others get their turn
                break
        if changed:
            connection.executemany("DELETE FROM span WHERE id = ?", [(row.id,) for row in packed])
            connection.executemany("INSERT INTO span VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", packed)
        connection.execute(_PACKED, (up_to,))
        return seen

    def _packed(self, connection: Connection, row: _Row, cut: bool) -> _Row:
        if not is_packable(row.body):
            return row
        growing = self._growing = self._growing or GrowingTexts(connection)
        cuts = growing.cuts(row.id, row.body) if cut else []
        use_streams(connection, row.id, cuts)
        return row._replace(body=self._packer(connection, row.scope).pack(row.body, cuts))

    def _packer(self, connection: Connection, scope: str) -> Packer:
        number, made = dictionary_for(connection, scope)
        self._made |= made
        packer = self._packers.pop(number, None)
        if packer is None:
            bodies = Bodies(connection)
            try:
                packer = Packer(number, bodies.dictionary(number))
            except PackingError:  # `check` names it
                packer = Packer(NAMES, bodies.dictionary(NAMES))
            if len(self._packers) >= _PACKERS:
                del self._packers[next(iter(self._packers))]
        self._packers[number] = packer
        return packer


def drop_unused_dictionaries(connection: Connection) -> None:
    """Throw the dictionaries of scopes that are gone away."""
    query = "DELETE FROM dictionary WHERE NOT EXISTS (SELECT 1 FROM span WHERE span.scope = dictionary.scope)"
    connection.execute(query)


def _is_sound(row: _Row) -> bool:
    """Tell whether a row of a damaged file can be written again."""
    values: list[object] = list(row)
    return None not in values and isinstance(values[-1], bytes)


def _run(connection: Connection, last: int) -> list[_Row]:
    rows: list[_Row] = []
    size = 0
    cursor = connection.execute(_RUN, (last, _ROWS))
    for found in cursor:
        rows.append(_Row(*found))
        size += len(found[-1] or b"")
        if size >= _BYTES:
            break
    cursor.close()
    return rows


_HIGHEST = "min(?, (SELECT coalesce(max(id), 0) FROM span))"
"""Rows behind the last one are still to come."""
_IS_DONE = f"SELECT up_to >= {_HIGHEST} FROM packing"
_PACKED = f"UPDATE packing SET up_to = {_HIGHEST}"
_RUN = "SELECT * FROM span WHERE id > (SELECT up_to FROM packing) AND id <= ? ORDER BY id LIMIT ?"
