"""A record held it and was deleted."""

from __future__ import annotations

from memtrace_otel.attribution.evidence import Evidence
from memtrace_otel.attribution.rules.finding import CERTAIN, LIKELY, Finding, path, quoted, wanted
from memtrace_otel.attribution.rules.loss import last_loss
from memtrace_otel.model import Step
from memtrace_otel.semconv import FailureType


def deletion(evidence: Evidence) -> Finding | None:
    """Blame the delete that removed the last record carrying a needed piece."""
    for life in evidence.missing:
        loss = last_loss(evidence, life)
        if loss is None or not loss.after.deleted:
            continue
        held = f" {quoted(loss.before.content)}" if loss.before.content else ""
        reason = f"The record{held} held {wanted(life)} and was deleted before the question was asked."
        step = Step("deleted", loss.after.ref, loss.after.span.origin)
        strength = CERTAIN if life.need else LIKELY
        return Finding(FailureType.DELETION, loss.after.span, loss.after.ref, strength, reason, path(life, step))
    return None
