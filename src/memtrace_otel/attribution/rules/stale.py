"""Find two live records with different values for the same thing."""

from __future__ import annotations

from memtrace_otel.attribution.comparison import AS_MUCH_ABOUT
from memtrace_otel.attribution.evidence import Evidence, Life
from memtrace_otel.attribution.lineage import Version
from memtrace_otel.attribution.text import without_questions
from memtrace_otel.model import ref_kind
from memtrace_otel.semconv import RefKind

_ABOUT = 0.5
"""Share of the question that the answered record must hold, too."""


def stale_record(evidence: Evidence, life: Life) -> tuple[Version, Version] | None:
    """Return (older record that was answered, newer record that carries the piece), None without such a pair.

    The older record must have reached the model, carry the given answer, and be as close to the question as the newer
    record: a later value is often told in words that the question does not hold.
    """
    if not evidence.given or life.guessed:
        return None
    reached = {hit.record for hit in evidence.results.hits}
    pairs = [(h[0], h[-1]) for h in evidence.records if evidence.record(h[-1]) in reached and not h[-1].deleted]
    live = [pair for pair in pairs if ref_kind(pair[1].ref) != RefKind.STATE]  # a conversation keeps every message
    batches = {history[-1].key: history[0].origin for history in evidence.records}
    for new in life.surviving:
        owner, about = evidence.lineage.owner(new.span), evidence.compare.about(new.content)
        for first, old in live:
            if (
                first.span.start < new.span.start
                and first.origin != batches.get(new.key)  # texts of one batch correct nothing
                and evidence.lineage.owner(old.span) == owner
                and evidence.gives(without_questions(old.content), old.day)
                and evidence.compare.about(old.content) >= AS_MUCH_ABOUT * max(about, _ABOUT)
            ):
                return old, new
    return None
