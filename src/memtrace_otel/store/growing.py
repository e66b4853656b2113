"""Finds of a long text how much of it a stream has, and lets streams grow.

A text that grows is known by its head, the longest of 4,096, 8,192, 16,384, ... bytes that it has: the next version has
it too. A stream gets what two versions have in common, the one before and this one, so that what only stands at the end
of a version (the bracket that closes a list) does not come into it; the whole of a version that begins with the whole
of the one before.
"""

from __future__ import annotations

from contextlib import suppress
from sqlite3 import Connection
from typing import NamedTuple

from memtrace_otel.store.packing import Cut, PackingError
from memtrace_otel.store.streams import Streams, create_stream, extend_stream, find_stream, heads, size_of
from memtrace_otel.store.texts import LONG, long_texts

_REMEMBERED_BYTES = 8 << 20
_LEAST_SHARE = 2


class _Seen(NamedTuple):
    """A text, and the stream whose first `size` bytes it begins with; 0 when there is none."""

    text: bytes
    stream: int = 0
    size: int = 0


class GrowingTexts:
    """Remembers the texts that it saw last, 8 MiB. Is called inside a transaction, and of no use when that fails."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._streams = Streams(connection)
        self._seen: dict[int, _Seen] = {}
        self._bytes = 0

    def cuts(self, body: bytes) -> list[Cut]:
        """Return what of the long texts of a span is in streams."""
        found: list[Cut] = []
        for begin, end in long_texts(body):
            with suppress(PackingError):  # a damaged stream: `check` names it, and the text stays where it is
                stream, size = self._place(body[begin:end])
                if size:
                    found.append(Cut(begin, size, stream))
        return found

    def _place(self, text: bytes) -> tuple[int, int]:
        """Return a stream and how many bytes of it the text begins with, 0 when it is not worth it."""
        numbers = heads(text)[::-1]
        before = next((self._seen[number] for number in numbers if number in self._seen), _Seen(b""))
        common = _common(before.text, text)
        sure = len(text) if common == len(before.text) else common  # it was added to, nothing else
        least = max(LONG, len(text) // _LEAST_SHARE)
        grown = size_of(self._connection, before.stream)
        if grown >= before.size > 0:
            stream, size = before.stream, min(before.size, common)
            if size == before.size < grown:  # others made it grow
                size = _common(self._streams.read(stream, min(grown, len(text))), text)
            if size == grown < sure and common >= least:
                extend_stream(self._connection, stream, text[:sure], size)
                grown = size = sure
        else:
            stream, size = self._stored(numbers, text)
        if size < least <= common:
            stream, size = create_stream(self._connection, text[:sure]), sure
            grown = size
        if not size == len(text) < grown:  # else an older version, which came late
            self._remember(numbers[0], _Seen(text, stream, size))
        return (stream, size) if size >= least else (0, 0)

    def _stored(self, numbers: list[int], text: bytes) -> tuple[int, int]:
        stream, size = find_stream(self._connection, numbers) or (0, 0)
        return stream, _common(self._streams.read(stream, min(size, len(text))), text)

    def _remember(self, number: int, seen: _Seen) -> None:
        self._drop(number)
        self._seen[number] = seen
        self._bytes += len(seen.text)
        while self._bytes > _REMEMBERED_BYTES:
            self._drop(next(iter(self._seen)))

    def _drop(self, number: int) -> None:
        if seen := self._seen.pop(number, None):
            self._bytes -= len(seen.text)


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
