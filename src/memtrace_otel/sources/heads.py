"""Heads: what lineage asks of a span, in front of the rest of its packed body, which then need not be unpacked.

The attributes that a head tells are taken out of the body, each as the very bytes that are made again of what the head
tells. A body without those bytes (texts that are long or not in ASCII, an encoder with other habits) has no head, nor
has one that a text is cut out of.

    a byte, 33 added: 1 for failed and 2 for says which inputs fed which outputs
    four more, 33 added to each: how many texts there are up to the end of the inputs, their origins, the outputs, their
    actions
    the parent's id in hex digits, or nothing, and the texts, 0x1E between two

Part of the format of packed bodies, as are the names of the attributes: never to be changed.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import accumulate

from google.protobuf.message import DecodeError

from memtrace_otel import semconv
from memtrace_otel.otlp.mapped import SHORT, read_mapped, short_texts
from memtrace_otel.sources.texts import write_number

_KEYS = (semconv.INPUTS, semconv.INPUTS_ORIGINS, semconv.OUTPUTS, semconv.OUTPUTS_ACTIONS)
_NAMES = [b"\n" + bytes((len(key),)) + key.encode() for key in _KEYS]
_SIZES = [bytes((size,)) for size in range(128)]
_BETWEEN = "\x1e"
_NUMBERS = 5
_ZERO, _MOST = 33, 90
_BEFORE = _ZERO - 1  # the parent's id is the first text
_FAILED, _FLOW = 1, 2
_NO_PARENT = bytes(8)


Head = tuple[str, bool, bool, list[str], list[str], list[str], list[str]]
"""The id of the parent, '' for none; whether the span says which inputs fed which outputs, whether its status is an
error; refs and origins of the inputs, refs and actions of the outputs. A slice reads thousands: a class is slower."""


def read_head(head: bytes) -> Head:
    """Read a head. Raises ValueError for what is none."""
    mark, first, second, third, last = head[:_NUMBERS]
    texts = head[_NUMBERS:].decode("ascii").split(_BETWEEN)
    if last - _BEFORE != len(texts):
        raise ValueError("not as many texts as it says")
    first, second, third = first - _BEFORE, second - _BEFORE, third - _BEFORE
    arrays = texts[1:first], texts[first:second], texts[second:third], texts[third:]
    mark -= _ZERO
    return (texts[0], mark & _FLOW > 0, mark & _FAILED > 0, *arrays)


def attributes_of(head: Head) -> list[bytes]:
    """Return the arrays that a head tells as attributes of a Span."""
    return [_attribute(name, texts) for name, texts in zip(_NAMES, head[3:], strict=True)]


def take_head(body: bytes) -> tuple[bytes, list[tuple[int, int, int]]] | None:
    """Return the head of a Span, which may lack its ids, and where to cut what the head tells: begin and end, by begin,
    and the place of what is there in `attributes_of` it. None when it has none."""
    try:
        parent_id, failed, attributes = read_mapped(body)
        arrays = [short_texts(attributes[key]) if key in attributes else [] for key in _KEYS]
    except (DecodeError, LookupError, ValueError):
        return None
    texts = [text for array in arrays for text in array]
    if semconv.PART in attributes or len(texts) > _MOST:
        return None
    if any(len(text) >= len(SHORT) or _BETWEEN in text for text in texts):
        return None
    mark = _FLOW * (semconv.FLOW in attributes) | _FAILED * failed
    numbers = bytes(_ZERO + number for number in (mark, *accumulate(map(len, arrays))))
    parent = parent_id.hex() if len(parent_id) == 8 and parent_id != _NO_PARENT else ""
    cuts: list[tuple[int, int, int]] = []
    for place, (key, name, array) in enumerate(zip(_KEYS, _NAMES, arrays, strict=True)):
        if key in attributes:
            made = _attribute(name, array)
            begin = body.find(made)
            if begin < 0:
                return None
            cuts.append((begin, begin + len(made), place))
    return numbers + _BETWEEN.join((parent, *texts)).encode("ascii"), sorted(cuts)


def _attribute(name: bytes, texts: Iterable[str]) -> bytes:
    """An attribute of a Span, as encoders write one that is an array of short texts."""
    items = "".join([SHORT[len(text)] + text for text in texts]).encode("ascii")
    return _field(b"J", name + _field(b"\x12", _field(b"*", items)))


def _field(tag: bytes, content: bytes) -> bytes:
    size = len(content)
    return tag + (_SIZES[size] if size < 128 else write_number(size)) + content
