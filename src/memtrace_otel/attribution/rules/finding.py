"""The result of a rule: an explanation of the failure, its strength, and the steps of the evidence."""

from __future__ import annotations

import re
from dataclasses import dataclass

from memtrace_otel.attribution.evidence import Life
from memtrace_otel.attribution.lineage import Version
from memtrace_otel.attribution.text import numbers, terms
from memtrace_otel.model import OperationSpan, Step
from memtrace_otel.semconv import FailureType

_WORD = re.compile(r"[\w.:,-]*\w")
CERTAIN, SURE, LIKELY, POSSIBLE, WEAK = 0.98, 0.9, 0.7, 0.65, 0.45
"""Strength of a finding: a loss shown by words and identity, an answer beside its memory, shown by words, by identity
alone, by absence or similarity only. Fitted to the share of right verdicts on bench, seeds 3 and 11."""

WHOLE_JSON = "Make the model reply with whole JSON only: check its limit of tokens and its response format."


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One explanation. `operation` is None when the trace does not hold the faulty operation. `strength` is 0 to 1."""

    failure_type: FailureType
    operation: OperationSpan | None
    variable: str
    strength: float
    reason: str
    advice: str = ""
    """One next step for a person."""
    steps: tuple[Step, ...] = ()
    proven: bool = True
    """False when missing spans keep the finding from being decisive."""


def strength_of(life: Life) -> float:
    """Return the strength by words and identity, by named evidence, or by similarity to the question."""
    if life.translated:
        return POSSIBLE
    if life.guessed or life.overwritten:
        return WEAK
    return CERTAIN if life.need and not life.need.in_part else POSSIBLE


def path(life: Life, *losses: Step, record: Version | None = None) -> tuple[Step, ...]:
    """Return the steps from the source message as far as the life went, then the loss. The record that it is about is
    the one that reached the model, or was stored last, unless `record` is given."""
    steps: list[Step] = []
    source = next((s for s in life.sources), None)
    if source is not None:
        steps.append(Step("message", source.message.ref, source.message.span.origin, source.message.content))
    hit = next(((hit.ref, hit.origin) for hit in life.returned), None)
    shown = [v for v in life.versions if (v.ref, v.origin) == hit]
    records = [record] if record else (shown or life.versions[-1:])
    for role, versions in (("fact", life.facts[:1]), ("record", records)):
        steps += [Step(role, v.ref, v.origin, v.content) for v in versions]
    steps += [Step("hit", hit.ref, hit.reader.origin, hit.content) for hit in life.returned[:1]]
    return (*steps, *losses)


def quoted(text: str, limit: int = 160, *, around: frozenset[str] = frozenset()) -> str:
    """Return the text on one line in quotation marks, cut at `limit` characters; around the first of the terms."""
    line = " ".join(text.split())
    if len(line) <= limit:
        return f'"{line}"'
    found = next((match.start() for match in _WORD.finditer(line) if terms(match[0]) & around), 0)
    start = found - limit // 3 if found > limit // 2 else 0
    before, after = "…" if start else "", "…" if start + limit < len(line) else ""
    return f'"{before}{line[start : start + limit - len(before) - len(after)]}{after}"'


def excerpt(text: str, life: Life) -> str:
    """Quote the text around the words of the piece that this life is about."""
    return quoted(text, around=life.need.terms if life.need else frozenset())


def leaves_out(life: Life) -> str:
    """Name the kind of the piece for the next step: "quantities", "dates"."""
    if life.need is None:
        return "what the message says"
    return (
        "dates" if life.need.periods else "quantities and numbers" if numbers(life.need.text) else "names and details"
    )


def wanted(life: Life) -> str:
    """Name the piece of the answer that this life is about."""
    if life.guessed:
        return "what is nearest to the question"
    return quoted(life.need.text, 80) if life.need and not life.need.in_part else "the evidence"
