"""A request cut into its spans or log records, so that each can be built alone.

A protobuf message of tiny parts takes up to 35 times its bytes in memory.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, field

from google.protobuf.message import Message

from memtrace_otel.otlp.receiver.intake import TooLargeError
from memtrace_otel.otlp.receiver.limits import Limits
from memtrace_otel.otlp.receiver.wire import record, records

_PATH = (0x0A, 0x12, 0x12)
"""Tags from a request over its resources and scopes to a span; the same to a log record."""
_LEAF = len(_PATH)


@dataclass(frozen=True, slots=True)
class Piece:
    """A span or log record: where its record and its bytes start, and where both end."""

    first: int
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Group:
    """What has one resource: the bytes of that, as they are in ResourceSpans, and the pieces."""

    shared: bytes
    pieces: list[Piece] = field(default_factory=list[Piece])


def check_count(found: int, limits: Limits) -> int:
    """Return the number of spans, records or groups found so far. Raises TooLargeError when they are too many."""
    if found > limits.spans:
        raise TooLargeError(f"more than {limits.spans} spans, log records or groups of them in one request")
    return found


class Cutter:
    """Cuts a request. `message` is its type; what is between the pieces is checked by it."""

    def __init__(self, body: bytes, limits: Limits, message: type[Message]) -> None:
        self._body = body
        self._limits = limits
        self._message = message
        self._groups = self._pieces = 0

    def cut(self) -> list[Group]:
        """Return the groups. Raises TooLargeError, WireError and protobuf's DecodeError."""
        groups: list[Group] = []
        others: list[bytes] = []
        for tag, first, value, end in records(self._body, 0, len(self._body)):
            if tag == _PATH[0]:
                self._groups = check_count(self._groups + 1, self._limits)
                pieces: list[Piece] = []
                groups.append(Group(self._cut(value, end, 1, pieces), pieces))
            else:
                others.append(self._body[first:end])
        self._check(others, 0)
        return groups

    def piece(self, piece: Piece) -> bytes:
        """Return the request that holds this piece alone, without its resource and scope."""
        return wrapped(self._body[piece.start : piece.end], _LEAF)

    def without(self, refused: Collection[int]) -> bytes:
        """Return the request without the pieces whose records start there."""
        return self._without(refused, 0, len(self._body), 0)

    def _cut(self, start: int, end: int, level: int, pieces: list[Piece]) -> bytes:
        """Add the pieces of the message of that level to `pieces`; return what else it holds."""
        others: list[bytes] = []
        for tag, first, value, last in records(self._body, start, end):
            if tag != _PATH[level]:
                others.append(self._body[first:last])
                continue
            if level + 1 < _LEAF:
                self._groups = check_count(self._groups + 1, self._limits)
                self._cut(value, last, level + 1, pieces)
            else:
                self._pieces = check_count(self._pieces + 1, self._limits)
                pieces.append(Piece(first, value, last))
        return self._check(others, level)

    def _check(self, others: list[bytes], level: int) -> bytes:
        shared = b"".join(others)
        if len(shared) > self._limits.span_bytes:
            raise TooLargeError(
                f"a resource or scope of {len(shared)} bytes, at most {self._limits.span_bytes} are taken"
            )
        self._message.FromString(wrapped(shared, level))
        return shared

    def _without(self, refused: Collection[int], start: int, end: int, level: int) -> bytes:
        kept: list[bytes] = []
        for tag, first, value, last in records(self._body, start, end):
            if tag != _PATH[level]:
                kept.append(self._body[first:last])
            elif level + 1 < _LEAF:
                kept.append(record(tag, self._without(refused, value, last, level + 1)))
            elif first not in refused:
                kept.append(self._body[first:last])
        return b"".join(kept)


def wrapped(message: bytes, level: int) -> bytes:
    """Return the request that holds a message of that level: protobuf counts nesting from the request."""
    for tag in reversed(_PATH[:level]):
        message = record(tag, message)
    return message
