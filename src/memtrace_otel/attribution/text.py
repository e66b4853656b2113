"""Deterministic comparison of short texts: terms, their weights, overlap, negation, lists, abstaining.

Works on any script: words are Unicode word runs, runs of scripts without spaces become pairs of characters. Stemming,
stop words and number words are English; other languages compare by their plain words.
"""

from __future__ import annotations

import math
import re
import unicodedata
from collections import Counter
from collections.abc import Iterable
from functools import lru_cache

_WORD = re.compile(r"\d+(?:[.,:]\d+)*|[^\W\d_]+(?:['’][^\W\d_]+)?", re.UNICODE)
_NAME = re.compile(r"[^\W\d_]+")
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\u0e00-\u0eff\u1000-\u109f\uac00-\ud7af]")
_STOP = frozenset(
    """a an the and or but nor so if then than that this these those there here it its is are was were be been being am
    do does did doing done have has had having will would shall should can could may might must of in on at to from by for with
    about into onto over under after before during between through out up down off as not no n't i me my mine we us our
    you your he him his she her hers they them their who whom whose which what when where why how many much some any each
    all both very just also too only own same such more most other s t ll re ve m d don really quite
    get got gets getting went go goes going said say says mentioned according answer memory memories based user
    like likely kind type types please quick question remember remind recall tell now currently these days""".split()
)
_NUMBER_WORDS = {word: str(number) for number, word in enumerate(
    """zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen
    eighteen nineteen twenty""".split())} | {"thirty": "30", "forty": "40", "fifty": "50", "once": "1", "twice": "2"}  # fmt: skip
_NEGATION = re.compile(
    r"\b(?:no|not|never|none|nothing|neither|nor|without|cannot|isn|aren|wasn|weren|don|doesn|didn|won|can|couldn|stopped|quit"
    r"|no longer)(?:['’]?t)?\b",
    re.IGNORECASE,
)
_ABSTAINS = re.compile(
    r"\b(?:not (?:mentioned|specified|stated|provided|known|available|recorded|sure|enough|answerable|clear)|unknown|n/?a"
    r"|no (?:specific |direct |explicit |relevant )?(?:information|info|mention|memory|memories|record|records|details?|answer|data|evidence)"
    r"|(?:do|does|did|is|are|was|were|has|have|can|could)(?:n['’]t| not|not) (?:have|mention|contain|include|specify|provide|know|say|state|find"
    r"|recall|remember|any|tell|determine|answer|been told|told|enough)|unanswerable|unable to|never (?:mentioned|told|said)"
    r"|don['’]t know|idk|cannot (?:be )?(?:determine|answer|tell|find)\w*)\b",
    re.IGNORECASE,
)
_CONCLUDES = re.compile(r"\banswer(?: is)?:\s*(\S.*)", re.IGNORECASE | re.DOTALL)
_SENTENCE = re.compile(r"(?<=[.!?])\s+|\n+")
_YES_NO = re.compile(r"^\s*(yes|no|yeah|yep|nope|true|false)\b", re.IGNORECASE)
_SPLIT = re.compile(
    r"\s*(?:[,;\n•]|\band\b|\bas well as\b|\bor\b|&|^\s*[-*]\s+|^\s*\d+[.)]\s+)\s*", re.IGNORECASE | re.MULTILINE
)


def words(text: str) -> list[str]:
    """Return the normalised words of the text in order; numbers as digits, unspaced scripts as character pairs."""
    result: list[str] = []
    for match in _WORD.finditer(unicodedata.normalize("NFKC", text).casefold()):
        word = match[0].replace("’", "'").removesuffix("'s").removesuffix("n't")
        if _UNSPACED.search(word):
            result.extend(word[i : i + 2] for i in range(max(len(word) - 1, 1)))
        elif word:
            result.append(_NUMBER_WORDS.get(word, word.replace(",", "") if word[0].isdigit() else word))
    return result


_INFLECTIONS = (
    ("ies", "y"),
    ("sses", "ss"),
    ("ing", ""),
    ("edly", ""),
    ("ied", "y"),
    ("ed", ""),
    ("ly", ""),
    ("s", ""),
)
_DERIVATIONS = ("ation", "ance", "ence", "ment", "ness", "ion", "ate", "ant", "ent", "ful")


def stem(word: str) -> str:
    """Cut English inflection and the commonest derivations ("important", "importance"); short words and numbers stay."""
    if len(word) < 4 or not word.isascii() or word[0].isdigit():
        return word
    for ending, put in _INFLECTIONS:
        if word.endswith(ending) and not word.endswith("ss") and len(word) - len(ending) >= 3:
            word = word[: -len(ending)] + put
            break
    ending = next((e for e in _DERIVATIONS if word.endswith(e) and len(word) - len(e) >= 4), "")
    word = word.removesuffix(ending)
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz":
        word = word[:-1]
    return word[:-1] if len(word) > 3 and word.endswith(("e", "y")) else word


@lru_cache(maxsize=1 << 15)
def terms(text: str) -> frozenset[str]:
    """Return the stemmed content words of the text."""
    return frozenset(stem(word) for word in words(text) if word not in _STOP)


def numbers(text: str) -> frozenset[str]:
    """Return the numbers named in the text, as digits."""
    return frozenset(word for word in words(text) if word[0].isdigit())


def abstains(text: str) -> bool:
    """Tell whether an answer says that it does not know, or says nothing.

    What it says first decides ("Not mentioned. The closest is ..."), an explicit "Answer: ..." before that.
    """
    concluded = _CONCLUDES.search(text)
    said = concluded[1] if concluded else text
    first = next((part for part in _SENTENCE.split(said) if terms(part) or _ABSTAINS.search(part)), "")
    return not text.strip() or _ABSTAINS.search(first) is not None


def negated(text: str) -> bool:
    """Tell whether the text denies something."""
    return _NEGATION.search(text) is not None


def polarity(text: str) -> bool | None:
    """Return True for an answer that begins with yes, False for no, None for another kind of answer."""
    match = _YES_NO.match(text)
    return None if match is None else match[1].casefold() in ("yes", "yeah", "yep", "true")


def items(text: str) -> list[str]:
    """Split an enumeration into its items; a text that enumerates nothing is one item."""
    return [part for part in (piece.strip(" .\"'") for piece in _SPLIT.split(text)) if terms(part)]


def names(texts: Iterable[str]) -> frozenset[str]:
    """Return the names that texts begin with: whom memories are about, or who speaks in a message.

    A name begins two texts or more with a capital and is nowhere written small.
    """
    leading: Counter[str] = Counter()
    small: set[str] = set()
    for text in texts:
        found = _NAME.findall(text)
        leading.update(found[:1])
        small.update(word for word in found if word[:1].islower())
    return frozenset(
        name
        for name, count in leading.items()
        if count > 1 and name[0].isupper() and name.lower() not in small and name.lower() not in _STOP
    )


def named(text: str, among: frozenset[str]) -> frozenset[str]:
    """Return which of the names the text holds."""
    return among.intersection(_NAME.findall(text))


def leading_name(text: str, among: frozenset[str]) -> str:
    """Return the name that the text begins with, '' when it begins with none of them."""
    first = _NAME.match(text.lstrip())
    return first[0] if first and first[0] in among else ""


class Lexicon:
    """How much each term tells, learned from the texts of one memory: rare terms weigh more (inverse document frequency)."""

    def __init__(self, texts: Iterable[str]) -> None:
        documents = [terms(text) for text in dict.fromkeys(texts) if text]
        self._count = Counter(term for document in documents for term in document)
        self._total = len(documents)

    def weight(self, term: str) -> float:
        """Return the weight of a term; at least 0.1, highest for a term never seen."""
        return max(0.1, math.log((self._total + 2) / (self._count[term] + 1)))

    def mass(self, wanted: Iterable[str]) -> float:
        """Return the summed weight of the terms."""
        return sum(self.weight(term) for term in sorted(wanted))

    def share(self, wanted: frozenset[str], given: frozenset[str]) -> float:
        """Return how much of the weight of `wanted` is found in `given`: 0..1, 0 when nothing is wanted."""
        whole = self.mass(wanted)
        return self.mass(wanted & given) / whole if whole else 0.0
