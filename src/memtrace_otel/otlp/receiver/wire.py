"""The records of a protobuf message, found without building it: what a request holds can be taken piece by piece."""

from __future__ import annotations

from collections.abc import Iterator

_MOST_SHIFT = 63


class WireError(ValueError):
    """Bytes that are no protobuf message."""


def records(data: bytes, start: int, end: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield (tag, start of the record, start of its value, end of both) in their order; a tag holds the wire type.

    The value of a record of bytes begins after its length. Raises WireError.
    """
    at = start
    while at < end:
        first = at
        tag, at = _varint(data, at, end)
        match tag & 7:
            case 0:
                value, (_, at) = at, _varint(data, at, end)
            case 1:
                value, at = at, at + 8
            case 2:
                size, value = _varint(data, at, end)
                at = value + size
            case 5:
                value, at = at, at + 4
            case _:
                raise WireError(f"wire type {tag & 7}")
        if at > end or tag < 8:
            raise WireError("a record that ends after its message, or without a number")
        yield tag, first, value, at


def record(tag: int, value: bytes) -> bytes:
    """Return a record of bytes; `tag` below 128."""
    size, length = len(value), bytearray((tag,))
    while size > 127:
        length.append(size & 127 | 128)
        size >>= 7
    length.append(size)
    return bytes(length) + value


def _varint(data: bytes, at: int, end: int) -> tuple[int, int]:
    number = shift = 0
    while at < end and shift <= _MOST_SHIFT:
        byte = data[at]
        at += 1
        number |= (byte & 127) << shift
        if byte < 128:
            return number, at
        shift += 7
    raise WireError("a number that is cut off")
