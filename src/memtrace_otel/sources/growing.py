"""Finds of a long text how much of it a stream has, and lets streams grow.

A text that grows is known by its heads, digests of its first bytes, each an eighth longer at most: the next version has
them, too, and of other texts that begin like it none as long. A stream gets what two versions have in common, the one
before and this one, so that what only stands at the end of a version (the bracket that closes a list) does not come
into it; the whole of a version that begins with the whole of the one before.
"""

from __future__ import annotations

from contextlib import suppress
from sqlite3 import Connection
from typing import NamedTuple

from memtrace_otel.sources.bodies import UNDECODABLE, Bodies
from memtrace_otel.sources.packing import Cut, PackingError
from memtrace_otel.sources.streams import Streams, create_stream, extend_stream, find_stream, heads, size_of
from memtrace_otel.sources.texts import LONG, long_texts

_TEXTS = 16_384
_CACHED_BYTES = 8 << 20


class _Text(NamedTuple):
    """Where a text is: in the body of which row, as received."""

    row: int
    begin: int
    end: int


class _Seen(NamedTuple):
    """A text, and the stream that it begins with, 0 when there is none. `spent` is what this version and those before
    said again outside of streams: when a stream of their own costs no more, they get one."""

    text: _Text
    stream: int = 0
    spent: int = 0


_NONE = _Seen(_Text(0, 0, 0))


class GrowingTexts:
    """Remembers where the texts are that it saw last, 16,384 of them, and the words of some, 8 MiB; it reads others
    again. Is called inside a transaction, and of no use when that fails."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._streams = Streams(connection)
        self._bodies = Bodies(connection)
        self._seen: dict[int, _Seen] = {}
        self._cached: dict[_Text, bytes] = {}
        self._cached_bytes = 0
        self._earlier: dict[int, bytes] = {}
        """The body that was read last: the texts of a span mostly go on those of one other."""

    def cuts(self, row: int, body: bytes) -> list[Cut]:
        """Return what of the long texts of a span is in streams."""
        self._earlier = {}
        found: list[Cut] = []
        for begin, end in long_texts(body):
            with suppress(PackingError):  # a damaged stream: `check` names it, and the text stays where it is
                stream, size = self._place(_Text(row, begin, end), body[begin:end])
                if size:
                    found.append(Cut(begin, size, stream))
        return found

    def _place(self, place: _Text, text: bytes) -> tuple[int, int]:
        """Return a stream and how many bytes of it the text begins with, 0 when it is not worth it."""
        numbers = heads(text)[::-1]
        before = next((self._seen[number] for number in numbers if number in self._seen), _NONE)
        earlier = self._words(before.text)
        common = _common(earlier, text)
        sure = len(text) if common == len(earlier) else common  # it was added to, nothing else
        stream, grown = self._stream(before.stream, numbers)
        size = _common(self._streams.read(stream, min(grown, len(text))), text)
        if 0 < size == grown < sure:
            extend_stream(self._connection, stream, text[:sure], size)
            grown = size = sure
        spent = before.spent + max(0, common - size)
        if common >= LONG and (size < LONG or spent >= sure):
            stream, spent = create_stream(self._connection, text[:sure]), 0
            grown = size = sure
        if not size == len(text) < grown:  # else an older version, which came late
            self._remember(numbers[0], _Seen(place, stream, spent), text)
        return (stream, size) if size >= LONG else (0, 0)

    def _stream(self, stream: int, numbers: list[int]) -> tuple[int, int]:
        """Return a stream that a text may begin with, and its size: this one, another one with a head of the text when
        this one grows no more, or 0."""
        grown = size_of(self._connection, stream)
        return (stream, grown) if grown > 0 else find_stream(self._connection, numbers) or (0, 0)

    def _words(self, text: _Text) -> bytes:
        """What a text says; b"" when its row is gone or cannot be read, whatever is there when it became another: a
        text is only ever compared."""
        if text not in self._cached:
            if text.row not in self._earlier:
                self._earlier = {text.row: self._body(text.row)}
            return self._earlier[text.row][text.begin : text.end]
        return self._cached[text]

    def _body(self, id: int) -> bytes:
        query = "SELECT body, trace_id, span_id FROM span WHERE id = ?"
        for row in self._connection.execute(query, (id,)).fetchall():
            with suppress(*UNDECODABLE):
                return self._bodies.read(*row)
        return b""

    def _remember(self, number: int, seen: _Seen, words: bytes) -> None:
        if before := self._seen.pop(number, None):
            self._forget(before.text)
        self._seen[number] = seen
        if len(self._seen) > _TEXTS:
            del self._seen[next(iter(self._seen))]
        self._forget(seen.text)  # of a row that is packed again
        self._cached[seen.text] = words
        self._cached_bytes += len(words)
        while self._cached_bytes > _CACHED_BYTES:
            self._forget(next(iter(self._cached)))

    def _forget(self, text: _Text) -> None:
        self._cached_bytes -= len(self._cached.pop(text, b""))


def _common(one: bytes, other: bytes) -> int:
    """Return how many bytes two texts have in common from their beginning."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        if one[low:middle] == other[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
