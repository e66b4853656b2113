"""Rule `deletion`: a record held the answer and was deleted."""

from __future__ import annotations

from memtrace_otel.attribution.evidence import Evidence
from memtrace_otel.attribution.rules.finding import Finding, excerpt, path, strength_of, wanted
from memtrace_otel.model import Step
from memtrace_otel.semconv import FailureType


def deletion(evidence: Evidence) -> Finding | None:
    """Blame the delete that removed the last record carrying a needed piece."""
    for life in evidence.missing:
        loss = evidence.last_loss(life)
        if loss is None or not loss.after.deleted:
            continue
        held = f" {excerpt(loss.before.content, life)}" if loss.before.content else ""
        trimmed = loss.after.span.start > evidence.results.asked_at
        when = "in the turn of the question: the prompt has no copy" if trimmed else "before the question was asked"
        reason = f"The record{held} held {wanted(life)} and was deleted {when}."
        step = Step("deleted", loss.after.ref, loss.after.origin)
        return Finding(
            failure_type=FailureType.DELETION,
            operation=loss.after.span,
            variable=loss.after.ref,
            strength=strength_of(life),
            reason=reason,
            advice="Check what deleted the record (a rule, a time limit, a reset, the model), and store it again.",
            steps=path(life, step, record=loss.before),
        )
    return None
