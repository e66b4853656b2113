"""A stand-in for an embedding model: a hashed bag of words, the same vector for the same text everywhere."""

from __future__ import annotations

import hashlib
import math
import re

_WORD = re.compile(r"\d+:\d+|[a-z0-9]+")
_FUNCTION_WORDS = """
    a about again also am an and any are as at be because been but by can did do does for from get give go good had
    has have he her here him his how i if in into is it its just like me mine my no not now of on once one or our she
    so some that the their them then there they this to too us was we were what when where which while who whom why
    will with would yes you your assistant user
"""
_STOP = frozenset(_FUNCTION_WORDS.split())


def words(text: str) -> list[str]:
    """Return the content words of `text`, in order: lower case, without stop words, endings cut."""
    found = _WORD.findall(text.lower())
    return [_stem(word) for word in found if word.isdigit() or (len(word) > 1 and word not in _STOP)]


def embed(text: str, size: int) -> list[float]:
    """Return a vector of `size` numbers >= 0 and length 1: each word adds one at its place."""
    vector = [0.0] * size
    for word in words(text) or [""]:
        vector[int.from_bytes(hashlib.blake2b(word.encode(), digest_size=8).digest()) % size] += 1.0
    length = math.sqrt(sum(x * x for x in vector))
    return [x / length for x in vector]


def _stem(word: str) -> str:
    for ending in ("s", "ing", "ed", "e"):
        if len(word) - len(ending) >= 4:
            word = word.removesuffix(ending)
    return word
