"""Quotes: which texts a prompt repeats, with other white space or as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from typing import NamedTuple, cast

PROMPT = 1_000_000
"""Characters of a prompt that are searched."""
WORK = 1 << 26
"""Characters of a prompt, times the texts looked for: at most a tenth of a second."""
MIN_TEXT = 4
"""Shorter texts match a prompt by chance."""
_OCCURRENCES = 64
_OBJECTS, _OBJECT, _VALUES, _PLACES = 64, 2000, 32, 4
"""JSON objects of one prompt that are looked for by their values; their characters, values and places in the prompt."""
_AROUND_VALUES, _LEAST_VALUES = 32, 16
"""Characters that a prompt may write around the values of an object; characters of values that a question hardly has by
chance."""
_ESCAPES = re.compile(r'(?:\\(?:u[0-9a-fA-F]{4}|["\\/bfnrt]))+')


def fold(text: str) -> str:
    """`text` with single spaces for white space, none around it, and JSON escapes resolved."""
    if "\\" in text:
        text = _ESCAPES.sub(lambda run: str(json.loads(f'"{run[0]}"')), text)  # two escapes may be one character
    return " ".join(text.split())


def quotes(prompt: str, text: str) -> bool:
    """Whether `prompt` holds `text` as whole words."""
    text = text.strip()
    return bool(text) and any(
        not prompt[max(at - 1, 0) : at].isalnum() and not prompt[at + len(text) : at + len(text) + 1].isalnum()
        for at in _occurrences(prompt, text)
    )


def holds(prompt: str, text: str) -> bool:
    """Whether the folded prompt quotes a folded text, or all values of a text that is a JSON object."""
    return quotes(prompt, text) or place_of_values(prompt, text) >= 0


def place_of_values(prompt: str, text: str) -> int:
    """Where the values of a JSON object begin in the folded prompt, close together and in any order and form (a program
    may show the fields in words, or in another order); -1 where one is missing, or where `text` is no JSON object."""
    if not text.startswith("{") or len(text) > _OBJECT:
        return -1
    try:
        values = sorted({fold(value) for value in _values(json.loads(text))} - {""}, key=len, reverse=True)
    except (ValueError, RecursionError):
        return -1
    if not values or len(values) > _VALUES or len("".join(values)) < _LEAST_VALUES:
        return -1
    near = len(text) + _AROUND_VALUES
    for at in _occurrences(prompt, values[0])[:_PLACES]:
        start = max(at - near, 0)
        part = prompt[start : at + near]
        if all(quotes(part, value) for value in values):
            return at
    return -1


def _values(value: object) -> Iterator[str]:
    """Yield the values of a JSON value that are no containers, as a prompt shows them."""
    if isinstance(value, dict | list):
        items = cast("dict[str, object] | list[object]", value)
        for item in items.values() if isinstance(items, dict) else items:
            yield from _values(item)
    elif value is not None and not isinstance(value, bool):
        yield str(value)


def _occurrences(text: str, part: str) -> list[int]:
    """Where `part` begins in `text`: the first 64 places, none of which overlap."""
    places: list[int] = []
    at = text.find(part)
    while at >= 0 and len(places) < _OCCURRENCES:
        places.append(at)
        at = text.find(part, at + len(part))
    return places


def places_in(prompt: str, texts: Iterable[str]) -> tuple[dict[str, list[int]], bool]:
    """Where each folded text stands in the folded prompt by itself, and whether all texts were looked for.

    A place inside a longer text's place does not count. Of too many texts only the last ones are looked for.
    """
    possible = [text for text in texts if MIN_TEXT <= len(text) <= len(prompt)]
    affordable = max(1, WORK // max(1, len(prompt)))
    claimed = bytearray(len(prompt))
    found: dict[str, list[int]] = {}
    for text in sorted(possible[-affordable:], key=len, reverse=True):
        places = [at for at in _occurrences(prompt, text) if not claimed[at]]
        for at in places:
            claimed[at : at + len(text)] = b"\x01" * len(text)
        if places:
            found[text] = places
    return found, len(possible) <= affordable


class Recalled(NamedTuple):
    """A variable that a prompt may quote. `retrieved_by` is the origin of the search that returned a hit."""

    ref: str
    origin: str
    text: str
    scope: str = ""
    retrieved_by: str = ""


def found_in(prompt: str, candidates: Iterable[Recalled]) -> tuple[list[Recalled], bool]:
    """The candidates whose text, or the values of whose JSON object, stand in the folded prompt, in the order of the
    prompt, and whether all were looked for (see `places_in`)."""
    same: dict[str, list[Recalled]] = {}  # a text that several searches returned is looked for once
    for candidate in candidates:
        text = fold(candidate.text)
        same[text] = [*same.pop(text, ()), candidate]
    places, whole = places_in(prompt, same)
    starts = {text: found[0] for text, found in places.items()}
    for text in list(same)[-_OBJECTS:]:
        if text not in starts and (at := place_of_values(prompt, text)) >= 0:
            starts[text] = at
    return [candidate for text in sorted(starts, key=starts.__getitem__) for candidate in same[text]], whole
