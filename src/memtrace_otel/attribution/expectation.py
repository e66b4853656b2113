"""Split the expected answer into the pieces that a text must carry to support the answer."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date
from enum import StrEnum

from memtrace_otel.attribution.competing import competes
from memtrace_otel.attribution.date_words import in_english
from memtrace_otel.attribution.dates import Period, days_of_a_month, periods, without_periods
from memtrace_otel.attribution.text import (
    Lexicon,
    abstains,
    concluded,
    denies,
    first_statement,
    in_units_of,
    items,
    negated,
    numbers,
    polarity,
    statements,
    terms,
    without_questions,
    words,
)
from memtrace_otel.attribution.vocabulary import YES_NO

CARRIED = 0.6
"""Share of a need's weight that a text must hold to carry it: clearly the greater part."""

_ASKS_TIME = re.compile(
    r"\b(?:when|(?:what|which) (?:date|day|month|year|time)|how long ago|how recently)\b"
    r"|\b(?:wann|an welchem (?:datum|tag)|in welche[mr] (?:monat|jahr|woche))\b"
    r"|什么时候|何时|几月|几号|哪一?[天年]|哪个月",
    re.IGNORECASE,
)
_ASKS_INFERENCE = re.compile(r"\b(?:would|likely|might|could|probably|considered|suppose|infer)\b", re.IGNORECASE)
# "Could you tell me when ...", "what would you say ..."; but "Would you say that she is patient?" asks to conclude.
_POLITE = re.compile(
    r"\b(?:could|would|can) you (?:(?:please|kindly) )?(?:tell|remind|let|give|show)\b"
    r"|\b(?:could|can) you (?:(?:please|kindly) )?say\b|(?<=\w )would you say\b|\bwould you please\b",
    re.IGNORECASE,
)
_ASKS_QUANTITY = re.compile(r"\bhow (?:many|much|long|often|old|far|high|tall|big|heavy)\b", re.IGNORECASE)
_ASKS_VALUE = re.compile(r"^\W*(?:wh\w+|how)\b", re.IGNORECASE)
_HEAD_END = re.compile(r"[.!;(\n]|\s[—–]\s")
_MONTH = 31  # days
_CALENDAR = terms(
    "Monday Tuesday Wednesday Thursday Friday Saturday Sunday day week weekend month year date"
    " around approximately early late mid"
)
_YES_NO_TERMS = terms("yes yeah yep true no nope false")


class AnswerForm(StrEnum):
    """How the expected answer is compared."""

    TERMS = "terms"  # words, names, numbers, lists
    TIME = "time"
    POLAR = "polar"  # yes or no
    ABSTAIN = "abstain"  # the right answer is that nothing is known
    MISSING = "missing"  # no expected answer was captured


@dataclass(frozen=True, slots=True)
class Need:
    """One piece of the expected answer: its words, and the times it names."""

    text: str
    terms: frozenset[str]
    periods: tuple[Period, ...] = ()
    asked: frozenset[str] = frozenset()
    """The words of the question."""
    in_part: bool = False
    """One of the words is enough: they are the words of a message, not of the answer."""
    denies: bool | None = None
    """Of a bare yes or no: whether a text that holds the piece denies the words of the question."""

    def is_on(self, day: date | None) -> bool:
        """Return whether a day lies within one of the times."""
        return day is not None and any(wanted.contains(Period(day, day)) for wanted in self.periods)


@dataclass(frozen=True, slots=True)
class Expectation:
    """The question and the pieces its right answer is made of."""

    question: str
    expected: str
    form: AnswerForm
    needs: tuple[Need, ...]
    question_terms: frozenset[str]
    inference: bool
    """The question asks to conclude, not to recall: words of its answer need not have been said."""


def expectation(question: str, expected: str, *, known: bool = True) -> Expectation:
    """Read question and expected answer; `known` False when no expected answer was captured (not even an empty one)."""
    asked = terms(question)
    concludes = _ASKS_INFERENCE.search(_POLITE.sub("", question)) is not None
    inference = concludes and not (_ASKS_QUANTITY.search(question) and numbers(expected))  # a number is recalled
    form, needs = _read(question, expected, asked, known)
    return Expectation(question, expected, form, needs, asked, inference)


def given_answer(question: str, answer: str) -> Expectation:
    """Read a given answer without its opening and without what the answer adds."""
    return expectation(question, _answering(question, answer))


def _answering(question: str, answer: str) -> str:
    """Return the statement that shares most words with the question, else the first that abstains, else the last one
    that tells: "Happy to help. Strawberry." """
    asked, parts = terms(question), statements(concluded(answer))
    about = max((p for p in parts if not abstains(p)), key=lambda part: len(terms(part) & asked), default="")
    if terms(about) & asked:
        return about
    telling = [part for part in parts if terms(without_questions(part))]
    return next((part for part in parts if abstains(part)), telling[-1] if telling else answer)


def _read(question: str, expected: str, asked: frozenset[str], known: bool) -> tuple[AnswerForm, tuple[Need, ...]]:
    if not known:
        return AnswerForm.MISSING, ()
    if (not terms(expected) and polarity(expected) is None and not periods(expected)) or abstains(expected):
        return AnswerForm.ABSTAIN, ()
    expected = first_statement(expected)  # the first statement answers, the others explain
    if polarity(expected) is not None:
        rest = terms(YES_NO.sub("", expected)) - asked
        denies = None if rest or negated(question) else not polarity(expected)
        return AnswerForm.POLAR, (Need(expected, rest or asked, denies=denies),)
    times = tuple(periods(expected))
    if times and (_ASKS_TIME.search(question) or len(terms(in_english(expected))) <= 3 * len(times)):
        return AnswerForm.TIME, (Need(expected, terms(expected), times), *_beside_times(expected, asked))
    needs = tuple(Need(item, terms(item) - asked, asked=asked) for item in items(expected))
    needs = tuple(need for need in needs if need.terms)
    return AnswerForm.TERMS, needs or (Need(expected, terms(expected), asked=asked),)


def _beside_times(expected: str, asked: frozenset[str]) -> tuple[Need, ...]:
    """Return the piece that a dated answer tells beside its dates: a time of day, a place."""
    beside = " ".join(without_periods(expected).split()).strip(" ,.")
    rest = terms(beside) - asked - _CALENDAR
    return (Need(beside, rest, asked=asked),) if rest else ()


def carries(text: str, need: Need, lexicon: Lexicon, today: date | None = None, *, undated: bool = True) -> bool:
    """Return whether `text`, said or stored on the day `today`, holds this piece of the expected answer.

    With `undated`, what names no time is about the day it was told.
    """
    text = in_units_of(need.text, text)
    if need.periods:
        if any(wanted.days == 1 and wanted.start.day in days_of_a_month(text) for wanted in need.periods):
            return True
        stated = periods(text, today)
        if not stated and today is not None and undated:  # a week or weekend is known from words only
            return any(w.contains(Period(today, today)) for w in need.periods if w.days == 1 or w.days >= 28)
        return any(wanted.same(given) or wanted.covers(given) for wanted in need.periods for given in stated)
    if not numbers(need.text) <= numbers(text) | (numbers(need.text) - need.terms):
        return False
    if need.in_part:
        return bool(need.terms & terms(text))
    if lexicon.share(need.terms, terms(text)) < CARRIED:
        return False
    return need.denies is None or need.denies == negated(_closest(text, need.terms, lexicon))


def _closest(text: str, wanted: frozenset[str], lexicon: Lexicon) -> str:
    """Return the statement that holds most of the words: the negation of another statement denies another thing."""
    return max(statements(text), key=lambda part: lexicon.share(wanted, terms(part)), default="")


def answered(given: str, need: Need, form: AnswerForm, lexicon: Lexicon) -> bool:
    """Return whether the given answer holds this piece."""
    if form is AnswerForm.POLAR:
        return polarity(concluded(given)) is not None and polarity(concluded(given)) == polarity(need.text)
    if abstains(given):
        return False
    if need.periods:
        return any(wanted.same(stated) for wanted in need.periods for stated in periods(given))
    negative = negated(need.text) and need.denies is None
    if negative and not denies(given, need.terms | need.asked, of=need.text):
        return False
    given = in_units_of(need.text, given)
    if need.terms == numbers(need.text):  # a bare number is answered by that number and no other
        return numbers(without_periods(given)) - need.asked == need.terms
    return carries(given, need, lexicon)


def same_answer(given: str, wish: Expectation) -> bool:
    """Return whether the given answer says what was expected: every piece whole, no contradiction or other value added.

    Strict on purpose: it decides that a judge was wrong.
    """
    if wish.form is AnswerForm.MISSING:
        return False
    if wish.form is AnswerForm.ABSTAIN:
        return bool(given.strip()) and (
            abstains(given) or (not wish.expected and _denies_premise(concluded(given), wish))
        )
    if abstains(given):
        return False
    given = in_units_of(wish.expected, concluded(given))
    if wish.form is AnswerForm.POLAR:
        return _same_polarity(given, wish)
    given = _without_opening(given, wish)
    if negated(given) != negated(wish.expected):
        return False
    if wish.form is AnswerForm.TIME and _same_times(periods(given), wish.needs[0].periods):
        beside = without_periods(given)
        others = numbers(beside) - numbers(wish.expected) - numbers(wish.question)
        return not any(":" in other for other in others) and all(need.terms <= terms(beside) for need in wish.needs[1:])
    whole = terms(wish.expected)
    wanted = whole - wish.question_terms or whole  # of "tea or coffee?" every word stands in the question
    if not wanted <= terms(given):
        return False
    extended = len(wish.needs) > 1 and len(items(given)) > len(wish.needs)  # a longer list holds the list expected
    return extended or _begins_with(given, wish) or not competes(given, wish.question, wish.expected)


def added_items(given: str, wish: Expectation) -> list[frozenset[str]]:
    """Return the words of each item by which a given list is longer than the list expected."""
    if len(wish.needs) < 2 or wish.form is not AnswerForm.TERMS:
        return []
    given, expected = _without_opening(concluded(given), wish), terms(wish.expected)
    return [terms(item) - wish.question_terms for item in items(given) if not terms(item) & expected]


def _without_opening(given: str, wish: Expectation) -> str:
    """Return the answer without its first statements if they share no word with question and expected answer."""
    known = wish.question_terms | terms(wish.expected)
    parts = statements(given)
    first = next((i for i, part in enumerate(parts) if terms(part) & known or numbers(part) or periods(part)), 0)
    return given[given.find(parts[first]) :] if first else given


def _denies_premise(given: str, wish: Expectation) -> bool:
    """Return whether the answer only denies what was asked: "She has no plans for the summer"."""
    added = terms(first_statement(given)) - wish.question_terms - _YES_NO_TERMS
    return negated(first_statement(given)) and len(added) <= 1 and not numbers(given)


def _begins_with(given: str, wish: Expectation) -> bool:
    """Return whether the answer is the expected answer with an addition that is no second value ("... by its author").

    A list of one item is expected; more items are other values.
    """
    expected, said = words(wish.expected), words(first_statement(given))
    more = said[len(expected) :]
    return bool(expected) and said[: len(expected)] == expected and more[:1] == ["by"] and len(items(given)) == 1


def _same_polarity(given: str, wish: Expectation) -> bool:
    """The same yes or no, and the same rest ("No, moved to Paris", "No sugar") unless yes or no is all asked for."""
    if polarity(given) is None or polarity(given) != polarity(wish.expected):
        return False
    rest = terms(first_statement(wish.expected)) - wish.question_terms - _YES_NO_TERMS
    bare = not terms(_HEAD_END.split(given, maxsplit=1)[0]) - _YES_NO_TERMS
    if not rest or (bare and not _ASKS_VALUE.search(wish.question)):
        return True
    return rest <= terms(given) and not competes(given, wish.question, wish.expected)


def _same_times(stated: Sequence[Period], wanted: Sequence[Period]) -> bool:
    """Every time wanted is stated, a day at least by its week or month, and no other time is stated."""
    missed = any(not any(w.same(s) or _coarser(s, w) for s in stated) for w in wanted)
    other = any(not any(w.same(s) or s.contains(w) for w in wanted) for s in stated)
    return bool(stated) and not missed and not other


def _coarser(stated: Period, day: Period) -> bool:
    """Return whether a day is stated by its week or month."""
    return day.days == 1 and stated.contains(day) and stated.days <= _MONTH
