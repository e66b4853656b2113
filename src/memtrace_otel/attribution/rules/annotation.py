"""The expected answer is not what the messages say; the given answer is."""

from __future__ import annotations

from memtrace_otel.attribution.evidence import AS_MUCH_ABOUT, Evidence
from memtrace_otel.attribution.expectation import AnswerForm, Expectation, expectation
from memtrace_otel.attribution.lineage import Source
from memtrace_otel.attribution.rules.finding import CERTAIN, WEAK, Finding, quoted
from memtrace_otel.model import Step
from memtrace_otel.semconv import FailureType, RefKind, Role


def annotation(evidence: Evidence) -> Finding | None:
    """Blame the expected answer when no message supports it and messages about the question support the given one."""
    wish = evidence.wish
    if wish.form in (AnswerForm.MISSING, AnswerForm.POLAR) or wish.inference or not evidence.readable:
        return None
    if any(life.furthest for life in evidence.lives if life.need and life.said) or evidence.abstained:
        return None
    given = expectation(wish.question, evidence.failure.answer)
    source = _supporting(evidence, given)
    if source is None:
        return None
    reason = f"{quoted(source.message.content)} supports the given answer {quoted(evidence.failure.answer)}; no message supports the expected {quoted(wish.expected)}."
    judge = evidence.failure.judge_span
    expected = next((v.ref for v in judge.inputs if v.role == Role.EXPECTED), "") if judge else ""
    strength = WEAK if evidence.absence_proves_nothing else CERTAIN
    step = Step("message", source.message.ref, source.message.span.origin, source.message.content)
    return Finding(
        FailureType.ANNOTATION,
        evidence.answer_span,
        expected or f"{RefKind.EXPECTED}:unknown",
        strength,
        reason,
        (step,),
    )


def _supporting(evidence: Evidence, given: Expectation) -> Source | None:
    """The message most about the question, if it carries the whole given answer."""
    if given.form not in (AnswerForm.TERMS, AnswerForm.TIME):
        return None
    best = max((evidence.about(s.message.content) for s in evidence.messages), default=0.0)
    for source in sorted(evidence.named or evidence.messages, key=lambda s: -evidence.about(s.message.content)):
        message = source.message
        near = best > 0 and evidence.about(message.content) >= AS_MUCH_ABOUT * best
        if near and all(evidence.supports(message.content, need, message.day) for need in given.needs):
            return source
    return None
