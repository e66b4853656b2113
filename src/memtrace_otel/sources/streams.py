"""Streams: what texts that grow have in common, kept once, in pieces that are deflated each by itself.

A version of a growing text is the first bytes of a stream and a rest, which its span keeps. So a version is read
without reading any other, however many there are. A stream is never longer than the longest version that uses it: when
that goes, what only it said goes too, and the stream grows no more, so that what is at a place of it never changes.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from contextlib import suppress
from hashlib import blake2b
from sqlite3 import Connection, DatabaseError

from memtrace_otel.sources.connection import is_corrupt
from memtrace_otel.sources.packing import Cut, PackingError
from memtrace_otel.sources.texts import LONG

PIECE = 16_384
NUMBER_BITS = 24
_LEVEL = 6
_CACHED = 128


class Streams:
    """Reads streams; keeps the pieces that it read last, 2 MiB."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._pieces: dict[int, bytes] = {}

    def read(self, stream: int, size: int) -> bytes:
        """Return the first `size` bytes of a stream. Raises PackingError."""
        lengths = [min(PIECE, size - begin) for begin in range(0, size, PIECE)]
        return b"".join(self._piece(stream, number, length) for number, length in enumerate(lengths))

    def _piece(self, stream: int, number: int, length: int) -> bytes:
        key = _key(stream, number)
        piece = self._pieces.pop(key, b"")
        if len(piece) < length:
            piece = load_piece(self._connection, stream, number)
        if len(piece) < length:
            raise PackingError(f"its stream {stream} is cut off")
        if len(self._pieces) >= _CACHED:
            del self._pieces[next(iter(self._pieces))]
        self._pieces[key] = piece
        return piece[:length]


def load_piece(connection: Connection, stream: int, number: int) -> bytes:
    """Return one piece of a stream. Raises PackingError."""
    try:
        row = connection.execute("SELECT text FROM piece WHERE id = ?", (_key(stream, number),)).fetchone()
    except DatabaseError as error:
        if not is_corrupt(error):
            raise
        raise PackingError(f"piece {number} of its stream {stream} cannot be read: {error}") from error
    if row is None:
        raise PackingError(f"piece {number} of its stream {stream} is gone")
    try:
        return zlib.decompress(row[0])
    except (zlib.error, TypeError) as error:
        raise PackingError(f"piece {number} of its stream {stream} is damaged: {error}") from None


def heads(text: bytes) -> list[int]:
    """Return numbers for the first 4,096 bytes of a text, the first 4,608 and so on, in steps of an eighth to a
    sixteenth: a text that extends another one has all of its numbers."""
    found: list[int] = []
    digest = blake2b(digest_size=8)
    done, size = 0, LONG
    while size <= len(text):
        digest.update(text[done:size])
        found.append(int.from_bytes(digest.digest(), "big", signed=True))
        done, size = size, size + (1 << size.bit_length() - 4)
    return found


def find_stream(connection: Connection, numbers: Iterable[int]) -> tuple[int, int] | None:
    """Return id and size of the newest stream whose last head is the first of `numbers` for which there is one."""
    query = "SELECT id, size FROM stream WHERE head = ? ORDER BY id DESC LIMIT 1"
    return next((row for number in numbers if (row := connection.execute(query, (number,)).fetchone())), None)


def create_stream(connection: Connection, text: bytes) -> int:
    """Add a stream and return its id."""
    stream = connection.execute("INSERT INTO stream (head, size) VALUES (?, 0)", (heads(text)[-1],)).lastrowid
    assert stream is not None
    _append(connection, stream, 0, text)
    return stream


def extend_stream(connection: Connection, stream: int, text: bytes, size: int) -> None:
    """Bring a stream of `size` bytes, which are the first ones of `text`, to the whole of it."""
    _append(connection, stream, size, text[size:])
    connection.execute("UPDATE stream SET head = ? WHERE id = ?", (heads(text)[-1], stream))


def size_of(connection: Connection, stream: int) -> int:
    """Return the size of a stream that may grow, -1 when there is none."""
    row = connection.execute("SELECT size FROM stream WHERE id = ? AND head IS NOT NULL", (stream,)).fetchone()
    return int(row[0]) if row else -1


def use_streams(connection: Connection, span: int, cuts: Iterable[Cut]) -> None:
    """Remember how much of which streams the span of a row needs."""
    for cut in cuts:
        connection.execute(
            "INSERT INTO stream_use (span, stream, size) VALUES (?, ?, ?)"
            " ON CONFLICT (span, stream) DO UPDATE SET size = max(size, excluded.size)",
            (span, cut.stream, cut.size),
        )


def release_streams(connection: Connection, span: int) -> None:
    """Take out of the file what only the span of a row needed of streams."""
    used = connection.execute("SELECT stream FROM stream_use WHERE span = ?", (span,)).fetchall()
    for (stream,) in used:
        connection.execute("DELETE FROM stream_use WHERE span = ? AND stream = ?", (span, stream))
        query = "SELECT max(size) FROM stream_use WHERE stream = ?"
        needed = connection.execute(query, (stream,)).fetchone()[0] or 0
        (size,) = connection.execute("SELECT size FROM stream WHERE id = ?", (stream,)).fetchone() or (0,)
        if needed < size:
            _cut_off(connection, stream, needed)
        if not needed:
            connection.execute("DELETE FROM stream WHERE id = ?", (stream,))


def _cut_off(connection: Connection, stream: int, size: int) -> None:
    """A piece that cannot be read goes, too: who needs it cannot be read either way, and `check` names it."""
    number, rest = divmod(size, PIECE)
    last = b""
    with suppress(PackingError):
        last = load_piece(connection, stream, number)[:rest] if rest else b""
    first, behind = _key(stream, number), _key(stream + 1, 0)
    connection.execute("DELETE FROM piece WHERE id >= ? AND id < ?", (first, behind))
    if last:
        connection.execute("INSERT INTO piece VALUES (?, ?)", (first, zlib.compress(last, _LEVEL)))
    connection.execute("UPDATE stream SET size = ?, head = NULL WHERE id = ?", (number * PIECE + len(last), stream))


def _append(connection: Connection, stream: int, size: int, text: bytes) -> None:
    number, rest = divmod(size, PIECE)
    text = (load_piece(connection, stream, number)[:rest] if rest else b"") + text
    for begin in range(0, len(text), PIECE):
        piece = zlib.compress(text[begin : begin + PIECE], _LEVEL)
        connection.execute("INSERT OR REPLACE INTO piece VALUES (?, ?)", (_key(stream, number), piece))
        number += 1
    connection.execute("UPDATE stream SET size = ? WHERE id = ?", (size - rest + len(text), stream))


def _key(stream: int, number: int) -> int:
    return stream << NUMBER_BITS | number
