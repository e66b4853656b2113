"""Rule `judge`: the answer is right, and the judge called the answer wrong."""

from __future__ import annotations

from memtrace_otel.attribution.evidence import Evidence
from memtrace_otel.attribution.expectation import added_items
from memtrace_otel.attribution.rules.finding import CERTAIN, WEAK, Finding, quoted
from memtrace_otel.attribution.text import terms
from memtrace_otel.model import Step
from memtrace_otel.semconv import USER_FEEDBACK, FailureType


def judge(evidence: Evidence) -> Finding | None:
    """Blame the judge when the given answer says what was expected."""
    failure = evidence.failure
    if not failure.answer or not evidence.is_right:
        return None
    operation = failure.judge_span or evidence.answer_span
    expected = quoted(failure.expected) if failure.expected else "that nothing is known"
    reason = (
        f"The answer {quoted(failure.answer)} says what was expected, {expected}, and was judged wrong all the same."
    )
    told = [terms(source.message.content) for source in evidence.messages]
    untold = not evidence.reading and any(
        not any(item <= one for one in told) for item in added_items(failure.answer, evidence.wish)
    )
    answer = next((o.ref for o in evidence.answer_span.outputs), "")
    return Finding(
        failure_type=FailureType.JUDGE,
        operation=operation,
        variable=answer,
        strength=WEAK if untold else CERTAIN,  # the longer list may hold a wrong item
        reason=reason,
        advice=(
            "Ask the user what was wrong: the answer says what was expected."
            if failure.evaluation == USER_FEEDBACK
            else "Check the prompt and the rule of the judge: the answer counts as right in other words."
        ),
        steps=(Step("judged", answer, operation.origin),),
    )
