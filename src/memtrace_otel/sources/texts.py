"""Long texts in the bytes of a span: where they are, without reading the rest."""

from __future__ import annotations

from collections.abc import Iterator

LONG = 4096
"""Bytes; a shorter text is left where it is: deflate sees all of it at once."""

_Fields = dict[int, "_Fields"]
_TEXT: _Fields = {}
_VALUE: _Fields = {1: _TEXT, 7: _TEXT}
_PAIR: _Fields = {2: _VALUE}
_VALUE.update({5: {1: _VALUE}, 6: {1: _PAIR}})
_SPAN: _Fields = {9: _PAIR, 11: {3: _PAIR}, 13: {4: _PAIR}}
"""Which fields of a span lead to values: attributes, those of events, those of links."""
_FIXED = {1: 8, 5: 4}


def long_texts(body: bytes) -> list[tuple[int, int]]:
    """Return begin and end of every text of at least `LONG` bytes in the values of a Span, in their order; [] for bytes
    that are none."""
    try:
        return list(_find(body, 0, len(body), _SPAN)) if len(body) > LONG else []
    except (IndexError, ValueError, RecursionError):
        return []


def _find(body: bytes, at: int, end: int, fields: _Fields) -> Iterator[tuple[int, int]]:
    while at < end:
        tag, at = read_number(body, at)
        kind = tag & 7
        if kind != 2:
            at = read_number(body, at)[1] if kind == 0 else at + _fixed(kind)
            continue
        size, at = read_number(body, at)
        inner = fields.get(tag >> 3)
        if at + size > end:
            raise ValueError("a field ends behind its message")
        if size >= LONG and inner is _TEXT:
            yield at, at + size
        elif size >= LONG and inner:
            yield from _find(body, at, at + size, inner)
        at += size


def _fixed(kind: int) -> int:
    if kind not in _FIXED:
        raise ValueError(f"no wire type {kind}")
    return _FIXED[kind]


def read_number(data: bytes, at: int) -> tuple[int, int]:
    """Return the varint at an offset and the offset behind it. Raises IndexError."""
    if (byte := data[at]) < 0x80:
        return byte, at + 1
    number = shift = 0
    while (byte := data[at]) >= 0x80:
        number |= (byte & 0x7F) << shift
        shift += 7
        at += 1
    return number | byte << shift, at + 1


def write_number(number: int) -> bytes:
    """Return a number as varint."""
    written = bytearray()
    while number >= 0x80:
        written.append(number & 0x7F | 0x80)
        number >>= 7
    written.append(number)
    return bytes(written)
