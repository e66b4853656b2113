"""Rule `deletion`: a record held the answer and was deleted."""

from __future__ import annotations

from memtrace_otel.attribution.evidence import Evidence
from memtrace_otel.attribution.rules.finding import Finding, excerpt, path, strength_of, wanted
from memtrace_otel.attribution.rules.update import summary_of
from memtrace_otel.model import Step, ref_kind
from memtrace_otel.semconv import FailureType, RefKind

_DELETED = "Check what deleted the record (a rule, a time limit, a reset, the model), and store it again."
_WINDOW = "Raise the limit of the history (messages or tokens), or summarise what leaves the history."


def deletion(evidence: Evidence) -> Finding | None:
    """Blame the delete that removed the last record carrying a needed piece."""
    for life in evidence.missing:
        loss = evidence.last_loss(life)
        if loss is None or not loss.after.deleted or summary_of(evidence, loss):
            continue
        held = f" {excerpt(loss.before.content, life)}" if loss.before.content else ""
        late = loss.after.span.start > evidence.results.asked_at
        when = "in the turn of the question: the prompt has no copy" if late else "before the question was asked"
        window = ref_kind(loss.after.ref) == RefKind.STATE
        gone = "left the history of the conversation" if window else "was deleted"
        reason = f"The {'message' if window else 'record'}{held} held {wanted(life)} and {gone} {when}."
        step = Step("deleted", loss.after.ref, loss.after.origin)
        return Finding(
            failure_type=FailureType.DELETION,
            operation=loss.after.span,
            variable=loss.after.ref,
            strength=strength_of(life),
            reason=reason,
            advice=_WINDOW if window else _DELETED,
            steps=path(life, step, record=loss.before),
        )
    return None
