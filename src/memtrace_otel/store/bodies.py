"""Span bodies in the file: read whether packed or not, packed a few at a time, with the dictionaries of the scopes.

The table of dictionaries is there once something was packed. A dictionary holds contents of its scope: `forget` takes
it out as well.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from functools import partial
from sqlite3 import Connection

from google.protobuf.message import DecodeError as ProtobufError

from memtrace_otel.otlp.decode import DecodeError
from memtrace_otel.store.connection import Locked, in_turns, transaction
from memtrace_otel.store.erasing import unfinished
from memtrace_otel.store.packing import NAMES, Packer, PackingError, dictionary_of, make_sample, unpack

_TABLE = """CREATE TABLE IF NOT EXISTS dictionary (
    number INTEGER PRIMARY KEY AUTOINCREMENT, scope TEXT NOT NULL, sample BLOB NOT NULL
)"""
UNDECODABLE = (ProtobufError, DecodeError, PackingError, TypeError)
"""What reading a body may raise; TypeError: a row of a file that was cut off holds nothing."""
_BATCH = 64
_SAMPLED = 256
_WORTHWHILE = 8
"""Fewer spans of a scope have no dictionary of their own."""


class Bodies:
    """Reads stored bodies; keeps the dictionaries that it needed."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._samples: dict[int, bytes] = {NAMES: b""}

    def read(self, stored: bytes, trace_id: str, span_id: str) -> bytes:
        """Return the body of a span as it was received. Raises PackingError."""
        number = dictionary_of(stored)
        return stored if number is None else unpack(stored, self.sample(number), trace_id, span_id)

    def sample(self, number: int) -> bytes:
        """Return a dictionary. Raises PackingError when it is not there."""
        if number not in self._samples:
            query = "SELECT sample FROM dictionary WHERE number = ?"
            row = self._connection.execute(query, (number,)).fetchone() if has_dictionaries(self._connection) else None
            if row is None:
                raise PackingError(f"its dictionary {number} is gone")
            try:
                self._samples[number] = zlib.decompress(row[0])
            except (zlib.error, TypeError) as error:
                raise PackingError(f"its dictionary {number} is damaged: {error}") from None
        return self._samples[number]


def has_dictionaries(connection: Connection) -> bool:
    """Tell whether anything was ever packed."""
    return connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'dictionary'").fetchone() is not None


def pack_spans(locked: Locked) -> None:
    """Pack what is not packed yet, in short transactions; throw dictionaries of scopes that are gone away."""
    with locked() as connection:
        scopes = connection.execute("SELECT DISTINCT scope FROM span WHERE substr(body, 1, 1) <> x'01'").fetchall()
    for (scope,) in scopes:
        with locked() as connection:
            query = "SELECT id FROM span WHERE scope = ? AND substr(body, 1, 1) <> x'01' ORDER BY start"
            ids = [id for (id,) in connection.execute(query, (scope,))]
            number = _dictionary(connection, scope, ids)
            packer = Packer(number, Bodies(connection).sample(number))
        in_turns(locked, ids, _BATCH, partial(_pack, packer=packer, number=number))
    with locked() as connection, transaction(connection):
        if has_dictionaries(connection):
            connection.execute("DELETE FROM dictionary WHERE scope NOT IN (SELECT scope FROM span)")


def drop_dictionaries(locked: Locked, scopes: Iterable[str]) -> None:
    """Take the dictionaries of some scopes out of the file; the spans that need them are stored as received again."""
    with locked() as connection:
        if not has_dictionaries(connection):
            return
        query = "SELECT number FROM dictionary WHERE scope = ?"
        numbers = [(number, scope) for scope in scopes for (number,) in connection.execute(query, (scope,))]
    for number, scope in numbers:
        with locked() as connection:
            ids = _packed_with(connection, number, scope)
        in_turns(locked, ids, _BATCH, _restore)
        with locked() as connection, transaction(connection):
            _restore(connection, _packed_with(connection, number, scope))  # packed meanwhile
            connection.execute("DELETE FROM dictionary WHERE number = ?", (number,))


def _dictionary(connection: Connection, scope: str, ids: list[int]) -> int:
    """Return the number of the dictionary of a scope, made of these spans when there is none and it is worthwhile."""
    if not scope:
        return NAMES
    with transaction(connection):
        connection.execute(_TABLE)
        query = "SELECT number FROM dictionary WHERE scope = ? ORDER BY number DESC"
        if row := connection.execute(query, (scope,)).fetchone():
            return int(row[0])
        if len(ids) < _WORTHWHILE or scope in unfinished(connection):
            return NAMES
        chosen = ids[:: max(1, len(ids) // _SAMPLED)]
        made = zlib.compress(make_sample([body for body, _, _ in _rows(connection, chosen)]), 9)
        cursor = connection.execute("INSERT INTO dictionary (scope, sample) VALUES (?, ?)", (scope, made))
        return int(cursor.lastrowid or NAMES)


def _exists(connection: Connection, number: int) -> bool:
    return connection.execute("SELECT 1 FROM dictionary WHERE number = ?", (number,)).fetchone() is not None


def _packed_with(connection: Connection, number: int, scope: str) -> list[int]:
    query = "SELECT id, substr(body, 1, 5) FROM span WHERE scope = ? AND substr(body, 1, 1) = x'01'"
    return [id for id, head in connection.execute(query, (scope,)) if dictionary_of(head) == number]


def _pack(connection: Connection, ids: Iterable[int], packer: Packer, number: int) -> None:
    """Pack spans, unless their dictionary was dropped meanwhile."""
    for id in ids if number == NAMES or _exists(connection, number) else ():
        row = connection.execute("SELECT body FROM span WHERE id = ?", (id,)).fetchone()
        if row is not None and dictionary_of(row[0]) is None:
            connection.execute("UPDATE span SET body = ? WHERE id = ?", (packer.pack(row[0]), id))


def _restore(connection: Connection, ids: Iterable[int]) -> None:
    bodies = Bodies(connection)
    for id in ids:
        for stored, trace_id, span_id in _rows(connection, (id,)):
            body = bodies.read(stored, trace_id, span_id)
            connection.execute("UPDATE span SET body = ? WHERE id = ?", (body, id))


def _rows(connection: Connection, ids: Iterable[int]) -> list[tuple[bytes, str, str]]:
    query = "SELECT body, trace_id, span_id FROM span WHERE id = ?"
    return [row for id in ids for row in connection.execute(query, (id,))]
