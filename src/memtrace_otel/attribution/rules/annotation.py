"""Rule `annotation`: no message supports the expected answer, and a message supports the given answer."""

from __future__ import annotations

from memtrace_otel.attribution.comparison import AS_MUCH_ABOUT
from memtrace_otel.attribution.evidence import Evidence
from memtrace_otel.attribution.expectation import AnswerForm
from memtrace_otel.attribution.rules.correction import correction
from memtrace_otel.attribution.rules.finding import CERTAIN, LIKELY, SURE, Finding, quoted
from memtrace_otel.attribution.rules.owner import hit_of_another, told_by_another
from memtrace_otel.attribution.source_messages import Source
from memtrace_otel.model import Step
from memtrace_otel.semconv import FailureType, RefKind, Role

_BY_WORDS = 0.3  # other words may tell the expected answer: a third of these verdicts is right on bench, seeds 3, 11
_UNPROVEN = 0.3  # with messages missing, one of them may support the expected answer


def annotation(evidence: Evidence) -> Finding | None:
    """Blame the expected answer when no message holds any piece of it and messages about the question support the
    given one.

    A message that corrects the expected answer and supports the given one acquits, too.

    A later correction is often told in words that the question does not hold ("I have moved to ..."), so a message
    needs no likeness to the question to acquit the expected answer.
    """
    wish = evidence.wish
    if wish.form in (AnswerForm.MISSING, AnswerForm.POLAR) or wish.inference or not evidence.readable:
        return None
    if evidence.abstained or evidence.redacted or hit_of_another(evidence):
        return None
    if (newer := correction(evidence)) is not None:
        reason = (
            f"{quoted(newer.message.content)} was told after the expected {quoted(wish.expected)} and supports the "
            f"given answer {quoted(evidence.failure.answer)}: the expected answer is outdated."
        )
        return _finding(evidence, newer, reason, LIKELY)
    source = _supporting(evidence)
    if source is None or any(evidence.tellers(evidence.decisive(need)) for need in wish.needs):
        return None
    reason = (
        f"{quoted(source.message.content)} supports the given answer {quoted(evidence.failure.answer)}; "
        f"no message about it supports the expected {quoted(wish.expected)}."
    )
    # Few other words tell a date (holidays do), or that nothing is known; named evidence is all that told the answer.
    dated = wish.form is AnswerForm.TIME
    closed = LIKELY if dated or evidence.named or wish.form is AnswerForm.ABSTAIN else _BY_WORDS
    shown = CERTAIN if evidence.reading else SURE if dated and evidence.named else closed
    return _finding(evidence, source, reason, shown if evidence.whole else _UNPROVEN)


def _finding(evidence: Evidence, source: Source, reason: str, strength: float) -> Finding:
    judge = evidence.failure.judge_span
    expected = next((v.ref for v in judge.inputs if v.role == Role.EXPECTED), "") if judge else ""
    step = Step("message", source.message.ref, source.message.span.origin, source.message.content)
    return Finding(
        failure_type=FailureType.ANNOTATION,
        operation=evidence.answer_span,
        variable=expected or f"{RefKind.EXPECTED}:unknown",
        strength=strength,
        reason=reason,
        advice="Correct the expected answer, or name the message that supports the expected answer as evidence.",
        steps=(step,),
        proven=evidence.whole,
    )


def _supporting(evidence: Evidence) -> Source | None:
    """Return the message closest to the question that carries the whole given answer."""
    best = max((evidence.about_source(s) for s in evidence.messages), default=0.0)
    for source in sorted(evidence.named or evidence.messages, key=lambda s: -evidence.about_source(s)):
        if told_by_another(evidence, source):
            continue
        message = source.message
        near = best > 0 and evidence.about_source(source) >= AS_MUCH_ABOUT * best
        told_otherwise = evidence.reading and evidence.reading.contradicts(message.content)
        if (near or evidence.named or told_otherwise) and evidence.gives(message.content, message.day):
            return source
    return None
