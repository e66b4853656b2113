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
from decimal import Decimal, DecimalException
from functools import lru_cache

from memtrace_otel.attribution.clock import hours_of, on_24_hours
from memtrace_otel.attribution.vocabulary import (
    ABSTAINS,
    CONCLUDES,
    DERIVATIONS,
    DISLIKES,
    INFLECTIONS,
    LIKES,
    MULTIPLIERS,
    NEGATION,
    NUMBER_WORDS,
    RATE,
    REFUSALS,
    SENTENCE_END,
    SEPARATORS,
    SIZES,
    STOP_WORDS,
    SYMBOLS,
    TENS,
    UNITS,
    YES,
    YES_NO,
)

_WORD = re.compile(r"(?:(?<![^\s(])-)?\d+(?:[.,:]\d+)*|[^\W\d_]+(?:['’][^\W\d_]+)?", re.UNICODE)
_SCRIPT_WITHIN = 200  # characters
_MOST_DIGITS = 15  # of a number before a number word; Python refuses to read 4300 digits
_SYMBOLS = str.maketrans(SYMBOLS)
_MINUS = re.compile(r"(?:\bminus |零下|−)(?=\d)")
_SPACED_GROUPS = re.compile(r"(?<![\d.,:])[1-9]\d{0,2}(?:[ '’]\d{3})+(?![\d:])")
_GROUPS = re.compile(r"[1-9]\d{0,2}(?:(?:,\d{3})+|(?:\.\d{3})+)")
_DECIMAL = re.compile(r"(\d+|[1-9]\d{0,2}(?:,\d{3})+(?=\.)|[1-9]\d{0,2}(?:\.\d{3})+(?=,))[.,](\d+)")
_ASKED = re.compile(r"[^.!?？。！\n]*[?？]")
_CLAUSE_END = re.compile(r"[,;:]\s|\n|\b(?:but|and|aber|und)\b", re.IGNORECASE)
_CONTRAST = re.compile(r";\s|\n|\b(?:but|aber)\b", re.IGNORECASE)
_UNIT = rf"({'|'.join(sorted(SIZES, key=len, reverse=True))})s?"
_QUANTITY = re.compile(rf"(\d+(?:[.,]\d+)*) ?{_UNIT}\b", re.IGNORECASE)
_UNIT_OF_RATE = rf"({'|'.join(sorted(RATE, key=len, reverse=True))})s?"
_RATE = re.compile(rf"(?<=\d) ?{_UNIT_OF_RATE} ?(?:/|per) ?{_UNIT_OF_RATE}\b", re.IGNORECASE)
_DIGITS = re.compile(r"(?<![\w-])\d(?:[-–]\d){2,}(?![\w-])")  # a code told digit by digit: 7-1-9-4
_COUNTS = {"a": 1, "an": 1} | NUMBER_WORDS | TENS
_COUNT = rf"(?<!ty[ -])(?<!hundred )(?<!thousand )(?<!and )({'|'.join(_COUNTS)}|\d{{1,9}})"
"""A count that is no part of a longer number: not the "five" of "twenty-five"."""
_COUNTED = re.compile(rf"\b{_COUNT} {_UNIT}\b", re.IGNORECASE)
_PART = r"(half|quarter)"
_FRACTION = re.compile(
    rf"\b(?:{_COUNT} {_UNIT} and a {_PART}|{_COUNT} and a {_PART} {_UNIT}|{_PART} (?:of )?(?:an? )?{_UNIT})\b",
    re.IGNORECASE,
)
"""A quantity with a spelled fraction: "an hour and a half", "two and a half kilos", "half an hour"."""
_NAME = re.compile(r"[^\W\d_]+")
_INNER_WORD = re.compile(r"(?<=[^\s.!?:\"'“„] )[^\W\d_]+")
_BEFORE_PRONOUN = frozenset({"that", "this", "which", "another", "any", "each", "every", "no", "the"})
_UNSPACED = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\u0e00-\u0eff\u1000-\u109f\uac00-\ud7af]")


def words(text: str) -> list[str]:
    """Return the normalised words of the text in order; numbers as digits, unspaced scripts as character pairs."""
    result: list[str] = []
    text = _with_fractions(unicodedata.normalize("NFKC", text).casefold().translate(_SYMBOLS))
    text = _RATE.sub(lambda rate: f" {RATE[rate[1].lower()]} per {RATE[rate[2].lower()]}", text)
    text = _DIGITS.sub(lambda code: re.sub(r"\D", "", code[0]), text)
    text = _SPACED_GROUPS.sub(lambda number: re.sub(r"\D", "", number[0]), on_24_hours(_MINUS.sub(" -", text)))
    for match in _WORD.finditer(text):
        word = match[0].replace("’", "'").removesuffix("'s").removesuffix("n't")
        if _UNSPACED.search(word):
            result.extend(word[i : i + 2] for i in range(max(len(word) - 1, 1)))
        elif word:
            result.append(_number(word) if _is_number(word) else UNITS.get(word, word))
    return _spelled_numbers(result)


def _with_fractions(text: str) -> str:
    """Return the text with spelled fractions of a unit as decimals: "an hour and a half" is "1.5 hour"."""

    def decimal(found: re.Match[str]) -> str:
        count, part, unit = (next(filter(None, found.group(*places)), "") for places in ((1, 4), (3, 5, 7), (2, 6, 8)))
        whole = _COUNTS[count.lower()] if count.lower() in _COUNTS else int(count or 0)
        return f"{whole}{'.5' if part.lower() == 'half' else '.25'} {unit}"

    return _FRACTION.sub(decimal, text) if re.search("half|quarter", text, re.IGNORECASE) else text


def _is_number(word: str) -> bool:
    return word.removeprefix("-")[:1].isdigit()


def _number(digits: str) -> str:
    """Return a number without separators of groups and with a point for decimals: 3,200 = 3.200 = 3200, 3,50 = 3.5.

    Three digits after a single separator are a group, except after a zero.
    """
    if digits[0] == "-":
        return f"-{_number(digits[1:])}"
    if _GROUPS.fullmatch(digits):
        return re.sub(r"[.,]", "", digits)
    if decimal := _DECIMAL.fullmatch(digits):
        whole, fraction = re.sub(r"[.,]", "", decimal[1]), decimal[2].rstrip("0")
        return f"{whole}.{fraction}" if fraction else whole
    return digits.removeprefix("0") if ":" in digits and digits[:2] != "0:" else digits


def _spelled_numbers(given: list[str]) -> list[str]:
    """Return the words with spelled numbers as digits: "three thousand two hundred" is 3200, "twenty five" is 25."""
    result: list[str] = []
    last = ""
    for word in given:
        known = result[-1] if result and result[-1].isdigit() and len(result[-1]) <= _MOST_DIGITS else ""
        if word in MULTIPLIERS and known:
            below = int(known) % 1000 if word == "hundred" else int(known)  # in 3 thousand 2 hundred, the 2 alone
            result[-1] = str(int(known) - below + below * MULTIPLIERS[word])
        elif word == "one" and last in _BEFORE_PRONOUN:
            pass  # "that one" counts nothing
        elif (value := NUMBER_WORDS.get(word, TENS.get(word))) is not None:
            follows = (last in TENS and 0 < value < 10) or (last in MULTIPLIERS and value < MULTIPLIERS[last])
            if known and follows:
                result[-1] = str(int(known) + value)
            else:
                result.append(str(value))
        else:
            result.append(word)
        last = word
    return result


def stem(word: str) -> str:
    """Cut English inflection and the commonest derivations ("importance"); short words and numbers stay."""
    if len(word) < 4 or not word.isascii() or _is_number(word):
        return word
    for ending, put in INFLECTIONS:
        if word.endswith(ending) and not word.endswith("ss") and len(word) - len(ending) >= 3:
            word = word[: -len(ending)] + put
            break
    ending = next((e for e in DERIVATIONS if word.endswith(e) and len(word) - len(e) >= 4), "")
    word = word.removesuffix(ending)
    if len(word) > 3 and word[-1] == word[-2] and word[-1] not in "lsz":
        word = word[:-1]
    return word[:-1] if len(word) > 3 and word.endswith(("e", "y")) else word


@lru_cache(maxsize=1 << 15)
def terms(text: str) -> frozenset[str]:
    """Return the stemmed content words of the text."""
    return frozenset(stem(word) for word in words(text) if word not in STOP_WORDS)


@lru_cache(maxsize=1 << 15)
def numbers(text: str) -> frozenset[str]:
    """Return the numbers named in the text, as digits."""
    return frozenset(word for word in words(text) if _is_number(word))


def script(text: str) -> str:
    """Return the script of most letters of the text, as Unicode names it ("LATIN", "CJK"); '' without letters."""
    letters = [char for char in text[:_SCRIPT_WITHIN] if char.isalpha()]
    counted = Counter(unicodedata.name(char, "").partition(" ")[0] for char in letters)
    return max(counted, key=lambda name: (counted[name], name), default="")


def first_statement(text: str) -> str:
    """Return the text up to the first end of a sentence, or dash, after which it says more."""
    return next(iter(statements(text)), text)


def statements(text: str) -> list[str]:
    """Return the parts of the text between ends of sentences, or dashes, without empty ones."""
    return [part for part in SENTENCE_END.split(text) if terms(part) or polarity(part) is not None]


def without_questions(text: str) -> str:
    """Return the text without its questions: a question tells no value."""
    return _ASKED.sub("", text)


def concluded(text: str) -> str:
    """Return the part of an answer after its last "Answer:" or "The answer is:", the whole answer without one."""
    conclusion = CONCLUDES.match(text)
    return conclusion[1] if conclusion else text


def abstains(text: str) -> bool:
    """Return whether an answer says that it does not know, or says nothing.

    What it says first decides ("Not mentioned. The closest is ..."), an explicit "Answer: ..." before that.
    """
    parts = (part for line in concluded(text).splitlines() for part in SENTENCE_END.split(line))
    first = next((part for part in parts if terms(part) or ABSTAINS.search(part)), "")
    return not text.strip() or ABSTAINS.search(first) is not None


def stated(text: str) -> str:
    """Return the part of an answer before its words of not knowing: what an answer tells of a list."""
    unknown = ABSTAINS.search(text)
    return text[: unknown.start()] if unknown else text


def negated(text: str) -> bool:
    """Return whether the text denies something."""
    return NEGATION.search(text) is not None


def denies(text: str, wanted: frozenset[str], *, of: str = "") -> bool:
    """Return whether the statement with most of the wanted words denies, dislikes or refuses what these words name.

    Beside `of`, a text that denies a refusal ("not allergic to nuts"), refusing denies nothing.
    """
    parts = (part for statement in SENTENCE_END.split(text) for part in _CONTRAST.split(statement))
    part = max(parts, key=lambda part: len(terms(part) & wanted))
    return negated(part) or (_refuses(part) and not _denies_refusal(of))


def clause_denies(text: str, wanted: frozenset[str]) -> bool:
    """Return whether the clause with most of the wanted words denies, dislikes or refuses: in "not tea, but coffee",
    the clause of coffee does not."""
    clause = _clause(text, wanted)
    return negated(clause) or _refuses(clause)


def _refuses(text: str) -> bool:
    return any(form.search(text) for form in (DISLIKES, REFUSALS))


def _denies_refusal(text: str) -> bool:
    found = ((clause, NEGATION.search(clause)) for clause in _CLAUSE_END.split(text))
    return any(negation and _refuses(clause[negation.end() :]) for clause, negation in found)


def _clause(text: str, wanted: frozenset[str]) -> str:
    return max(_CLAUSE_END.split(text), key=lambda part: len(terms(part) & wanted))


def likes(text: str, wanted: frozenset[str]) -> bool | None:
    """Return whether the clause with most of the wanted words likes (True) or dislikes (False); None for neither."""
    clause = _clause(text, wanted)
    if liking := LIKES.search(clause):
        return not (negated(clause[: liking.start()]) or DISLIKES.search(clause))
    return False if DISLIKES.search(clause) else None


def in_units_of(reference: str, text: str) -> str:
    """Return the text with its quantities in the units of the reference: "185 cm" is "1.85 m" beside "2 m", "half past
    two" is "14:30" beside "2:30 pm"."""
    text = hours_of(reference, text)
    reference, text = _with_fractions(reference), _with_fractions(text)
    units = {SIZES[unit.lower()][0]: unit.lower() for _, unit in _QUANTITY.findall(reference)}

    def converted(quantity: re.Match[str]) -> str:
        dimension, size = SIZES[quantity[2].lower()]
        unit = units.get(dimension, "")
        if not unit or unit == quantity[2].lower():
            return quantity[0]
        try:
            return f"{(Decimal(_number(quantity[1])) * size / SIZES[unit][1]).normalize():f} {unit}"
        except DecimalException:
            return quantity[0]

    if not units:
        return text
    text = _COUNTED.sub(lambda found: f"{_COUNTS.get(found[1].lower(), found[1])} {found[2]}", text)
    return _QUANTITY.sub(converted, text)


def polarity(text: str) -> bool | None:
    """Return True for an answer that begins with yes, False for no, None for another kind of answer."""
    match = YES_NO.match(text)
    return None if match is None else match[1].casefold() in YES


def items(text: str) -> list[str]:
    """Split an enumeration into its items; a text that enumerates nothing is one item."""
    return [part for part in (piece.strip(" \t\r\f\v\xa0.\"'") for piece in SEPARATORS.split(text)) if terms(part)]


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
        if count > 1 and name[0].isupper() and name.lower() not in small and name.lower() not in STOP_WORDS
    )


def capitalised(text: str) -> list[str]:
    """Return the words within sentences that begin with a capital: names, in most languages."""
    return [match[0] for match in _INNER_WORD.finditer(text) if match[0][0].isupper() and len(match[0]) > 1]


def named(text: str, among: frozenset[str]) -> frozenset[str]:
    """Return which of the names the text holds."""
    return among.intersection(_NAME.findall(text))


def leading_name(text: str, among: frozenset[str]) -> str:
    """Return the name that the text begins with, '' when it begins with none of them."""
    first = _NAME.match(text.lstrip())
    return first[0] if first and first[0] in among else ""


class Lexicon:
    """How much each term tells, learned from the texts of one memory: rare terms weigh more."""

    def __init__(self, texts: Iterable[str]) -> None:
        documents = [terms(text) for text in dict.fromkeys(texts) if text]
        self._count = Counter(term for document in documents for term in document)
        self._total = len(documents)

    def knows(self, term: str) -> bool:
        """Return whether any text holds the term."""
        return term in self._count

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
