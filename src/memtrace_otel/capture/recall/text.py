"""Texts as a prompt repeats them: with other white space, in part, in other cases."""

from __future__ import annotations

import re

_WORD = re.compile(r"\w+")
_OCCURRENCES = 64


def fold(text: str) -> str:
    """`text` with single spaces for white space, none around it."""
    return " ".join(text.split())


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
