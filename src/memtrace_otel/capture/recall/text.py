"""Texts as a prompt repeats them: with other white space, as JSON, in part, in other cases."""

from __future__ import annotations

import json
import re

_WORD = re.compile(r"\w+")
_OCCURRENCES = 64
_ESCAPES = re.compile(r'(?:\\(?:u[0-9a-fA-F]{4}|["\\/bfnrt]))+')


def fold(text: str) -> str:
    """`text` with single spaces for white space, none around it, and what JSON escapes as itself: `json.dumps` of what
    was found says the same."""
    if "\\" in text:
        text = _ESCAPES.sub(_unescaped, text)
    return " ".join(text.split())


def _unescaped(run: re.Match[str]) -> str:
    """A whole run at once: two escapes may be one character."""
    return str(json.loads(f'"{run[0]}"'))


def words_of(text: str) -> frozenset[str]:
    """The words of a text, however they are written."""
    return frozenset(_WORD.findall(text.casefold()))


def quotes(prompt: str, text: str) -> bool:
    """Tell whether `prompt` holds `text` as whole words."""
    text = text.strip()
    return bool(text) and any(
        not prompt[max(at - 1, 0) : at].isalnum() and not prompt[at + len(text) : at + len(text) + 1].isalnum()
        for at in occurrences(prompt, text)
    )


def occurrences(text: str, part: str) -> list[int]:
    """Where `part` begins in `text`, the first of them, no two overlapping."""
    places: list[int] = []
    at = text.find(part)
    while at >= 0 and len(places) < _OCCURRENCES:
        places.append(at)
        at = text.find(part, at + len(part))
    return places
