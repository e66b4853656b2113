"""Changed copies of inputs: bytes at random, protobuf numbers at their edges, JSON values of other types."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from copy import deepcopy
from typing import Any, cast

MOST_BYTES = 1 << 16
_EDGES = (b"\x00", b"\x7f", b"\x80\x01", b"\xff\xff\xff\xff\x07", b"\x80" * 9 + b"\x01", b"\xff" * 10, b"\xff" * 11)
_TEXTS = (b"\xff\xfe", b"\xed\xa0\x80", b"\x00", "\u202e漢🙂".encode(), b"\x2a\x02\x0a\x00", b"\x0a\x00" * 50)
_VALUES: tuple[object, ...] = (
    None, True, 0, -1, 2**63, -(2**63) - 1, 1e308, 0.5, "", "x", "NaN", "-Infinity", "9" * 30, "\ud800", "a" * 32,
    [], {}, [[]], {"intValue": "7"}, {"arrayValue": {"values": [{}]}}, {"kvlistValue": {}}, {"doubleValue": "NaN"},
)  # fmt: skip


def mutated(rng: random.Random, corpus: Sequence[bytes]) -> bytes:
    """Return an input of the corpus, changed one to eight times."""
    data = rng.choice(corpus)
    if data[:1] in b"{[" and data and rng.random() < 0.7:
        return _mutated_json(rng, data)
    for _ in range(rng.randrange(1, 9)):
        data = rng.choice(_MUTATIONS)(rng, data, corpus)
    return data[:MOST_BYTES]


def _place(rng: random.Random, data: bytes) -> int:
    return rng.randrange(len(data) + 1)


def _slice(rng: random.Random, data: bytes) -> bytes:
    start = _place(rng, data)
    return data[start : start + rng.choice((1, 2, 4, 16, 64, 1024))]


def _flip(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at = _place(rng, data)
    return data[:at] + bytes((rng.randrange(256),)) + data[at + 1 :]


def _bit(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    if not data:
        return data
    at = rng.randrange(len(data))
    return data[:at] + bytes((data[at] ^ 1 << rng.randrange(8),)) + data[at + 1 :]


def _insert(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at = _place(rng, data)
    return data[:at] + rng.choice((*_EDGES, *_TEXTS)) + data[at:]


def _replace(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at = _place(rng, data)
    put = rng.choice((*_EDGES, *_TEXTS))
    return data[:at] + put + data[at + len(put) :]


def _delete(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at = _place(rng, data)
    return data[:at] + data[at + rng.choice((1, 2, 8, 64)) :]


def _repeat(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    at = _place(rng, data)
    return data[:at] + _slice(rng, data) * rng.randrange(1, 20) + data[at:]


def _splice(rng: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    return data[: _place(rng, data)] + _slice(rng, rng.choice(corpus))


def _cut(rng: random.Random, data: bytes, _: Sequence[bytes]) -> bytes:
    return data[: _place(rng, data)]


def _join(rng: random.Random, data: bytes, corpus: Sequence[bytes]) -> bytes:
    return data + rng.choice(corpus)


_MUTATIONS: tuple[Callable[[random.Random, bytes, Sequence[bytes]], bytes], ...] = (
    _flip, _bit, _bit, _insert, _replace, _delete, _repeat, _splice, _cut, _join,
)  # fmt: skip


def _mutated_json(rng: random.Random, data: bytes) -> bytes:
    """Change values of a JSON document; what is none comes back as it is."""
    try:
        document: object = json.loads(data)
    except ValueError:
        return data
    for _ in range(rng.randrange(1, 4)):
        places = list(_places(document))
        if places:
            holder, key = rng.choice(places)
            _change(rng, holder, key)
    return json.dumps(document, ensure_ascii=rng.random() < 0.5).encode("utf-8", "surrogatepass")[:MOST_BYTES]


def _change(rng: random.Random, holder: Any, key: Any) -> None:
    match rng.randrange(5):
        case 0 if isinstance(holder, dict):
            holder[f"{key}x"] = holder.pop(key)
        case 1:
            del holder[key]
        case 2 if isinstance(holder, list):
            holder.append(deepcopy(holder[key]))
        case 3:
            value = holder[key]
            for _ in range(rng.choice((1, 10, 60))):
                value = {"arrayValue": {"values": [value]}}
            holder[key] = value
        case _:
            holder[key] = deepcopy(rng.choice(_VALUES))


def _places(value: object) -> Any:
    if isinstance(value, dict):
        for key, item in cast("dict[str, object]", value).items():
            yield value, key
            yield from _places(item)
    elif isinstance(value, list):
        for index, item in enumerate(cast("list[object]", value)):
            yield value, index
            yield from _places(item)
