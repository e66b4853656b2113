"""Span bodies in the file: read whether packed or not, with the dictionaries of the scopes.

A dictionary holds contents of its scope: `forget` takes it out as well.
"""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from sqlite3 import Connection

from google.protobuf.message import DecodeError as ProtobufError

from memtrace_otel.otlp.decode import DecodeError
from memtrace_otel.sources.connection import Locked, in_turns, transaction
from memtrace_otel.sources.erasing import unfinished
from memtrace_otel.sources.heads import Head
from memtrace_otel.sources.packing import (
    NAMES,
    Packer,
    PackingError,
    ReadStream,
    make_dictionary,
    make_sample,
    take_apart,
    unpack,
    unpack_head,
)
from memtrace_otel.sources.streams import Streams

UNDECODABLE = (ProtobufError, DecodeError, PackingError, TypeError)
"""What reading a body may raise; TypeError: a row of a file that was cut off holds nothing."""
_BATCH = 64
_CACHED = 128
_SAMPLED = 256
_SAMPLED_BYTES = 4 << 20
_NEWEST = 4096
_WORTHWHILE = 8
"""Fewer spans of a scope have no dictionary of their own; with so many times more than its dictionary was made for, a
scope gets a new one."""
_ENOUGH = 512
"""A dictionary for so many spans is made for any number."""


class Bodies:
    """Reads stored bodies; keeps the dictionaries that it needed last, 3 MiB."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._dictionaries: dict[int, bytes] = {}
        self._streams = Streams(connection)

    def read(self, stored: bytes, trace_id: str, span_id: str, read: ReadStream | None = None) -> bytes:
        """Return the body of a span as it was received; with `read`, with other texts where those of streams were.
        Raises PackingError."""
        packed = take_apart(stored)
        if packed is None:
            return stored
        return unpack(packed, self.dictionary(packed.dictionary), trace_id, span_id, read or self._streams.read)

    def look(self, stored: bytes, trace_id: str, span_id: str) -> tuple[Head | None, Callable[[], bytes]]:
        """Return the head of the body of a span, None where it has none, and a function that returns the body as `read`
        does. Raises PackingError."""
        packed = take_apart(stored)
        if packed and packed.head:
            dictionary = self.dictionary(packed.dictionary)  # who reads later may find it gone
            whole = partial(unpack, packed, dictionary, trace_id, span_id, self._streams.read)
            return unpack_head(packed, trace_id), whole
        body = self.read(stored, trace_id, span_id)
        return None, lambda: body

    def dictionary(self, number: int) -> bytes:
        """Return a dictionary. Raises PackingError when it is not there."""
        known = self._dictionaries
        dictionary = known.pop(number, None)
        if dictionary is None:
            sample = b"" if number == NAMES else _load_sample(self._connection, number)
            dictionary = make_dictionary(sample)
        if len(known) >= _CACHED:
            del known[next(iter(known))]
        known[number] = dictionary
        return dictionary


def _load_sample(connection: Connection, number: int) -> bytes:
    row = connection.execute("SELECT sample FROM dictionary WHERE number = ?", (number,)).fetchone()
    if row is None:
        raise PackingError(f"its dictionary {number} is gone")
    try:
        return zlib.decompress(row[0])
    except (zlib.error, TypeError) as error:
        raise PackingError(f"its dictionary {number} is damaged: {error}") from None


def dictionary_for(connection: Connection, scope: str) -> tuple[int, bool]:
    """Return the number of the dictionary to pack spans of a scope with, and whether it was just made, as it is where
    that is worthwhile. Is called inside a transaction."""
    if not scope:
        return NAMES, False  # nobody's erasure would find it
    query = "SELECT number, spans FROM dictionary WHERE scope = ? ORDER BY number DESC LIMIT 1"
    number, made_for = connection.execute(query, (scope,)).fetchone() or (NAMES, 1)
    if made_for >= _ENOUGH:
        return number, False
    counted = min(made_for * _WORTHWHILE, _ENOUGH)
    query = "SELECT count(*) FROM (SELECT 1 FROM span WHERE scope = ? LIMIT ?)"
    if connection.execute(query, (scope, counted)).fetchone()[0] < counted or scope in unfinished(connection):
        return number, False
    return _make_dictionary(connection, scope), True


def _make_dictionary(connection: Connection, scope: str) -> int:
    """Make a dictionary of some of the newest spans of a scope, the beginning of those that are long."""
    query = "SELECT id FROM span WHERE scope = ? ORDER BY start DESC LIMIT ?"
    ids = [id for (id,) in connection.execute(query, (scope, _NEWEST))]
    some = random.Random(len(ids)).sample(ids, min(len(ids), _SAMPLED))  # every so many-th may be of one kind
    sample = zlib.compress(make_sample(_without_streams(connection, some)), 9)
    made_for = min(len(ids), _ENOUGH)
    query = "INSERT INTO dictionary (scope, spans, sample) VALUES (?, ?, ?)"
    return int(connection.execute(query, (scope, made_for, sample)).lastrowid or NAMES)


def _without_streams(connection: Connection, ids: Iterable[int]) -> Iterator[bytes]:
    """Yield the bodies of rows, without texts of streams, until that is a lot; without what cannot be read: `check`
    names it."""
    bodies = Bodies(connection)
    read = 0
    query = "SELECT body, trace_id, span_id FROM span WHERE id = ? AND typeof(body) = 'blob'"
    for id in ids:
        for stored, trace_id, span_id in connection.execute(query, (id,)).fetchall():
            with suppress(*UNDECODABLE):
                body = bodies.read(stored, trace_id, span_id, read=lambda stream, size: b"")
                read += len(body)
                yield body
        if read > _SAMPLED_BYTES:
            return


def drop_dictionaries(locked: Locked, scopes: Iterable[str]) -> None:
    """Take the dictionaries of some scopes out of the file; the spans that need them are stored without again."""
    query = "SELECT number FROM dictionary WHERE scope = ?"
    with locked() as connection:
        numbers = [(number, scope) for scope in scopes for (number,) in connection.execute(query, (scope,))]
    for number, scope in numbers:
        with locked() as connection:
            ids = _packed_with(connection, number, scope)
        in_turns(locked, ids, _BATCH, _restore)
        with locked() as connection, transaction(connection):
            _restore(connection, _packed_with(connection, number, scope))  # packed meanwhile
            connection.execute("DELETE FROM dictionary WHERE number = ?", (number,))


def pack_again_from(connection: Connection, id: int) -> None:
    """Have the span of a row, which is stored as received now, packed again."""
    connection.execute("UPDATE packing SET up_to = min(up_to, ?)", (id - 1,))


def _packed_with(connection: Connection, number: int, scope: str) -> list[int]:
    """The rows of a scope that need a dictionary; without those that nobody can read with it either: `check` names
    them."""
    ids: list[int] = []
    for id, stored in connection.execute("SELECT id, body FROM span WHERE scope = ?", (scope,)):
        with suppress(*UNDECODABLE):
            if (packed := take_apart(stored)) and packed.dictionary == number:
                ids.append(id)
    return ids


def _restore(connection: Connection, ids: Iterable[int]) -> None:
    """Store spans without their dictionary: as received, or packed with names alone where long texts are cut out."""
    bodies = Bodies(connection)
    packer = Packer(NAMES, bodies.dictionary(NAMES))
    for id in ids:
        query = "SELECT body, trace_id, span_id FROM span WHERE id = ?"
        for stored, trace_id, span_id in connection.execute(query, (id,)).fetchall():
            try:
                packed = take_apart(stored)
                if packed and packed.cuts:
                    body = packer.pack_again(packed, bodies.dictionary(packed.dictionary))
                else:
                    body = bodies.read(stored, trace_id, span_id)
                    pack_again_from(connection, id)
            except UNDECODABLE:
                continue  # nobody could read it with the dictionary either; `check` names it
            connection.execute("UPDATE span SET body = ? WHERE id = ?", (body, id))
