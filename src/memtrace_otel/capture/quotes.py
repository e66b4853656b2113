"""Quotes: which texts a prompt repeats, with other white space or as JSON."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from typing import NamedTuple

PROMPT = 1_000_000
"""Characters of a prompt that are searched."""
WORK = 1 << 26
"""Characters of a prompt, times the texts looked for: at most a tenth of a second."""
MIN_TEXT = 4
"""Shorter texts match a prompt by chance."""
_OCCURRENCES = 64
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
    """The candidates whose text stands in the folded prompt, in the order of the prompt, and whether all were looked
    for (see `places_in`)."""
    same: dict[str, list[Recalled]] = {}  # a text that several searches returned is looked for once
    for candidate in candidates:
        text = fold(candidate.text)
        same[text] = [*same.pop(text, ()), candidate]
    places, whole = places_in(prompt, same)
    return [candidate for text in sorted(places, key=lambda text: places[text][0]) for candidate in same[text]], whole
