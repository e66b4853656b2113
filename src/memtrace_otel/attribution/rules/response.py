"""Rule `response`: the model had the memory and answered wrong, or answered a question without an answer."""

from __future__ import annotations

from memtrace_otel.attribution.evidence import Evidence, Life
from memtrace_otel.attribution.expectation import AnswerForm
from memtrace_otel.attribution.rules.correction import correction
from memtrace_otel.attribution.rules.finding import (
    LIKELY,
    POSSIBLE,
    SURE,
    WEAK,
    Finding,
    excerpt,
    path,
    quoted,
    strength_of,
    wanted,
)
from memtrace_otel.attribution.text import numbers
from memtrace_otel.model import Step
from memtrace_otel.semconv import FailureType

_NEAREST = 0.2  # a memory near to the question need not tell the answer: right in a fifth of the cases on bench
_ABSTAIN = 'Let the answering prompt ask for "I do not know" when memory does not hold the answer.'
_USE = "Check the answering prompt and model: the model was given what it needed."


def response(evidence: Evidence) -> Finding | None:
    """Blame the answering operation when the supporting memory was before it, or when it should have abstained."""
    unknown = evidence.wish.form is AnswerForm.MISSING
    if unknown and _as_told(evidence):
        return None
    step = Step(
        "answered", f"answer:{evidence.answer_span.span_id}", evidence.answer_span.origin, evidence.failure.answer
    )
    given = quoted(evidence.failure.answer) if evidence.failure.answer else "something else"
    life = next((life for life in evidence.missing if life.returned and not _lacks_number(evidence, life)), None)
    if evidence.wish.form is AnswerForm.ABSTAIN and not evidence.abstained:
        life = evidence.lives[0]
        known = (
            f" (the memory {quoted(life.returned[0].content)} was before it)"
            if life.returned and life.returned[0].content
            else ""
        )
        reason = (
            f"Memory does not hold what was asked and the right answer is to say so; the model answered {given}{known}."
        )
        return _finding(evidence, LIKELY, reason, path(life, step))
    if life is not None:
        hit = life.returned[0]
        shown = f"{excerpt(hit.content, life)} " if hit.content else ""
        reason = f"The memory {shown}with {wanted(life)} was before the model (hit {hit.rank}); it answered {given}."
        strength = _NEAREST if life.guessed and not unknown else min(SURE, strength_of(life))
        strength = POSSIBLE if strength > POSSIBLE and correction(evidence) else strength
        return _finding(evidence, strength, reason, path(life, step))
    if evidence.lives and not evidence.missing and evidence.wish.form is not AnswerForm.ABSTAIN:
        reason = f"What was told of the expected answer is in the answer {given}, but not that alone or not rightly."
        return _finding(evidence, min(LIKELY, strength_of(evidence.lives[0])), reason, path(evidence.lives[0], step))
    if evidence.wish.inference and evidence.results.hits:
        count = len(evidence.results.hits)
        reason = f"The question asks for a conclusion; the model had {count} memories before it and answered {given}."
        return _finding(evidence, WEAK, reason, path(evidence.lives[0], step) if evidence.lives else (step,))
    return None


def _lacks_number(evidence: Evidence, life: Life) -> bool:
    """Whether a guessed memory lacks a long number of the expected answer: other words cannot tell the number."""
    if not life.guessed or evidence.wish.form is not AnswerForm.TERMS:
        return False
    held = numbers("\n".join(hit.content for hit in life.returned))
    return any(len(number) > 1 for number in numbers(evidence.wish.expected) - held)


def _as_told(evidence: Evidence) -> bool:
    """Return whether the answer says what memory told: only an expected answer can show a failure of the model."""
    return not evidence.missing or any(evidence.gives(hit.content, hit.day) for hit in evidence.results.hits)


def _finding(evidence: Evidence, strength: float, reason: str, steps: tuple[Step, ...]) -> Finding:
    answer = next((o.ref for o in evidence.answer_span.outputs), f"answer:{evidence.answer_span.span_id}")
    return Finding(
        failure_type=FailureType.RESPONSE,
        operation=evidence.answer_span,
        variable=answer,
        strength=strength,
        reason=reason,
        advice=_ABSTAIN if evidence.wish.form is AnswerForm.ABSTAIN else _USE,
        steps=steps,
    )
