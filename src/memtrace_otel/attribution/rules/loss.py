"""Which operation made the last record that carried a piece stop carrying it."""

from __future__ import annotations

from dataclasses import dataclass

from memtrace_otel.attribution.evidence import Evidence, Life
from memtrace_otel.attribution.lineage import Version


@dataclass(frozen=True, slots=True)
class Loss:
    """`before` carried the piece, `after` (by an update or a deletion) does not."""

    before: Version
    after: Version


def last_loss(evidence: Evidence, life: Life) -> Loss | None:
    """Return the loss after which no record carried the piece; None when one still does or none ever did."""
    if life.surviving:
        return None
    carrying = {(v.ref, v.span.origin) for v in life.versions}
    losses: list[Loss] = []
    for history in evidence.records:
        held = [i for i, v in enumerate(history) if (v.ref, v.span.origin) in carrying]
        if held and held[-1] + 1 < len(history):
            losses.append(Loss(history[held[-1]], history[held[-1] + 1]))
    return max(losses, key=lambda loss: (loss.after.span.start, loss.after.span.origin), default=None)
