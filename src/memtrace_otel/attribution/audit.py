"""Doubts about expected answers: the messages contradict the expected answer, or do not support it.

Texts are compared by words, as the rules compare them. An answer in other words than the messages is doubted, too: a
doubt is a question to a person, and `sure` tells which to ask first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from memtrace_otel.attribution.comparison import AS_MUCH_ABOUT
from memtrace_otel.attribution.dates import periods
from memtrace_otel.attribution.evidence import Evidence
from memtrace_otel.attribution.expectation import AnswerForm, Need
from memtrace_otel.attribution.source_messages import Source
from memtrace_otel.attribution.text import numbers, statements, terms
from memtrace_otel.model import Failure, is_failing, rfc3339
from memtrace_otel.settings import EVALUATION_THRESHOLD

_QUOTED = 3
"""Sentences that a doubt quotes."""


class DoubtKind(StrEnum):
    """Why an expected answer is doubted."""

    CONTRADICTED = "contradicted"  # a message about the question tells another value
    OTHER_TIME = "other time"  # a later message about the question tells another value
    OTHER_OWNER = "other owner"  # only a message of another owner tells the value
    NOT_SUPPORTED = "not supported"  # no message tells the value


@dataclass(frozen=True, slots=True)
class Quote:
    """A sentence of a message: the origin of the operation that took the message, and its start (ns)."""

    origin: str
    time: int
    text: str


@dataclass(frozen=True, slots=True)
class Doubt:
    """A doubt about one expected answer. `pieces` are the parts of the answer that no message tells, or that a later
    message replaced; `sure` is 0 to 1."""

    failure: Failure
    kind: DoubtKind
    sure: float
    pieces: tuple[str, ...]
    quotes: tuple[Quote, ...]

    def json(self) -> dict[str, Any]:
        """Return the doubt as a JSON object."""
        failure = self.failure
        return {
            "trace_id": failure.trace_id,
            "span_id": failure.answer_span.span_id,
            "kind": str(self.kind),
            "sure": round(self.sure, 2),
            "question": failure.question,
            "expected": failure.expected,
            "answer": failure.answer,
            "pieces": list(self.pieces),
            "sentences": [
                {"text": one.text, "operation": one.origin, "when": rfc3339(one.time)} for one in self.quotes
            ],
        }


def can_audit(evidence: Evidence) -> bool:
    """Return whether words can decide: contents were captured, and the answer is a value, neither yes or no nor a
    conclusion."""
    compared = evidence.wish.form in (AnswerForm.TERMS, AnswerForm.TIME) and not evidence.wish.inference
    return compared and evidence.readable and bool(evidence.messages)


def doubt(evidence: Evidence) -> Doubt | None:
    """Return the doubt about the expected answer of a judged answer, None when messages support the expected answer.

    The evidence must be fit, see `can_audit`.
    """
    untold = [need for need in evidence.wish.needs if not evidence.tellers(need)]
    if untold:
        return _untold(evidence, untold)
    told = [source for need in evidence.wish.needs for source in evidence.tellers(need)]
    last = max(source.message.span.start for source in told)
    later = [source for source in _near(evidence) if source.message.span.start > last and _gives(evidence, source)]
    if later and not _repeats(evidence):
        return _doubt(evidence, DoubtKind.OTHER_TIME, 0.8, evidence.wish.needs, later)
    return None


def told_elsewhere(found: Doubt, everywhere: Evidence) -> Doubt:
    """Return the doubt; where messages of other owners in the evidence tell the unsupported pieces, the doubt says so.

    Words of low weight are in some message of every large database, so the message must be about the question, too.
    """
    needs = [need for need in everywhere.wish.needs if need.text in found.pieces]
    near = _near(everywhere) if everywhere.messages else []
    tellers = [source for source in near if all(source in everywhere.tellers(need) for need in needs)]
    if found.kind is not DoubtKind.NOT_SUPPORTED or not tellers:
        return found
    return _doubt(everywhere, DoubtKind.OTHER_OWNER, 0.6, needs, tellers)


def _untold(evidence: Evidence, untold: Sequence[Need]) -> Doubt:
    near, failure = _near(evidence), evidence.failure
    rivals = [source for source in near if _gives(evidence, source)]
    if rivals and not _repeats(evidence):
        return _doubt(evidence, DoubtKind.CONTRADICTED, 0.4 if _judged_right(failure) else 0.9, untold, rivals)
    exact = [need for need in untold if need.periods or numbers(need.text)]
    rivals = [source for source in near if any(_other_value(evidence, source, need) for need in exact)]
    if rivals:
        return _doubt(evidence, DoubtKind.CONTRADICTED, 0.7, exact, rivals)
    sure = 0.5 if exact else 0.5 * (1 - min(_held(evidence, need) for need in untold))
    return _doubt(evidence, DoubtKind.NOT_SUPPORTED, sure, untold, near)


def _near(evidence: Evidence) -> list[Source]:
    """Return the messages about the question, the closest first; the gold evidence where it is named."""
    sources = sorted(evidence.named or evidence.messages, key=lambda source: -evidence.about_source(source))
    least = AS_MUCH_ABOUT * evidence.about_source(sources[0])
    return [source for source in sources if evidence.named or evidence.about_source(source) >= least > 0]


def _judged_right(failure: Failure) -> bool:
    """Return whether the judge took expected and given answer for the same."""
    return is_failing(failure.label, failure.score, EVALUATION_THRESHOLD.read()) is False


def _repeats(evidence: Evidence) -> bool:
    """Return whether the given answer says what is expected, or a part of it: the given answer is no other value."""
    given = terms(evidence.failure.answer) - evidence.wish.question_terms
    return evidence.is_right or given <= terms(evidence.wish.expected)


def _gives(evidence: Evidence, source: Source) -> bool:
    return evidence.gives(source.message.content, source.message.day)


def _other_value(evidence: Evidence, source: Source, need: Need) -> bool:
    """Return whether a message tells another time, or another number, than the need."""
    text = source.message.content
    if need.periods:
        return bool(periods(text, source.message.day))
    return bool(numbers(text) - need.asked)


def _held(evidence: Evidence, need: Need) -> float:
    """Return the largest share of the words of a piece that one message holds."""
    return max(evidence.compare.held([source.message.content], need.terms) for source in evidence.messages)


def _doubt(evidence: Evidence, kind: DoubtKind, sure: float, needs: Sequence[Need], sources: Sequence[Source]) -> Doubt:
    failure = evidence.failure
    wanted = terms(f"{failure.question}\n{failure.expected}\n{failure.answer}")
    quotes: dict[str, Quote] = {}
    for source in sources:
        message = source.message
        parts = statements(message.content)
        text = max(
            parts,
            key=lambda part: (evidence.gives(part, message.day), evidence.compare.held([part], wanted)),
            default=message.content,
        )
        quotes.setdefault(text, Quote(message.span.origin, message.span.start, text))
    shown = tuple(list(quotes.values())[:_QUOTED])
    return Doubt(evidence.failure, kind, sure, tuple(need.text for need in needs), shown)
