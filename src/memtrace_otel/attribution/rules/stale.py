"""Find two live records with different values for the same thing."""

from __future__ import annotations

from memtrace_otel.attribution.comparison import AS_MUCH_ABOUT
from memtrace_otel.attribution.evidence import Evidence, Life
from memtrace_otel.attribution.expectation import AnswerForm, carries, expectation
from memtrace_otel.attribution.lineage import Version
from memtrace_otel.attribution.text import terms
from memtrace_otel.model import ref_kind
from memtrace_otel.semconv import RefKind


def stale_record(evidence: Evidence, life: Life) -> tuple[Version, Version] | None:
    """Return (older record that was answered, newer record that carries the piece), None without such a pair.

    The older record must have reached the model, carry the given answer, be as close to the question as the newer
    record, and be about the same thing: apart from the two values, most of their words are equal.
    """
    given = expectation(evidence.wish.question, evidence.failure.answer)
    if given.form in (AnswerForm.ABSTAIN, AnswerForm.MISSING) or life.need is None:
        return None
    reached = {hit.record for hit in evidence.results.hits}
    pairs = [(h[0], h[-1]) for h in evidence.records if evidence.record(h[-1]) in reached and not h[-1].deleted]
    live = [pair for pair in pairs if ref_kind(pair[1].ref) != RefKind.STATE]  # a conversation keeps every message
    for new in life.surviving:
        for first, old in live:
            earlier = first.span.start < new.span.start and evidence.lineage.scope(old.span) == evidence.lineage.scope(
                new.span
            )
            if not earlier or not all(carries(old.content, n, evidence.compare.lexicon, old.day) for n in given.needs):
                continue
            values = life.need.terms | frozenset(t for n in given.needs for t in n.terms)
            frame_old, frame_new = terms(old.content) - values, terms(new.content) - values
            same = (
                (evidence.reading is not None and evidence.reading.contradicts(old.content))
                or evidence.compare.lexicon.share(frame_old, frame_new) >= 0.5
                or evidence.compare.lexicon.share(frame_new, frame_old) >= 0.5
            )
            if same and evidence.compare.about(old.content) >= AS_MUCH_ABOUT * evidence.compare.about(new.content):
                return old, new
    return None
