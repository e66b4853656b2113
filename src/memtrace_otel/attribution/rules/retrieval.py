"""Rule `retrieval`: a live record held the answer, and the answering model never saw the record."""

from __future__ import annotations

from memtrace_otel.attribution.evidence import Evidence, Life
from memtrace_otel.attribution.expectation import AnswerForm
from memtrace_otel.attribution.lineage import Version
from memtrace_otel.attribution.rules.finding import CERTAIN, WEAK, Finding, excerpt, path, quoted, strength_of, wanted
from memtrace_otel.attribution.rules.missed import missed
from memtrace_otel.attribution.rules.owner import hit_of_another
from memtrace_otel.attribution.search_results import Hit
from memtrace_otel.model import Step, ref_kind
from memtrace_otel.semconv import FailureType, Incomplete, RefKind


def retrieval(evidence: Evidence) -> Finding | None:
    """Blame the search of this question that should have returned the surviving record, or the step that dropped it."""
    if (hit := hit_of_another(evidence)) is not None:
        return _of_another_owner(evidence, hit)
    for life in evidence.missing or _refuting(evidence):
        if life.returned or not life.surviving:
            continue
        record = max(life.surviving, key=lambda v: _nearness(evidence, v))
        operation, how, advice = missed(evidence, record)
        held = f" {excerpt(record.content, life)}" if record.content else ""
        held += f" with {wanted(life)}" if life.guessed else ""
        reason = f"The record{held} was in the store when the question came and {how}."
        reason += " The record is in another script than the message." if life.translated else ""
        strength = strength_of(life) if evidence.results.searches else _unasked(evidence, life)
        step = Step("not_retrieved", record.ref, operation.origin)
        return Finding(
            failure_type=FailureType.RETRIEVAL,
            operation=operation,
            variable=record.ref,
            strength=strength,
            reason=reason,
            advice=advice,
            steps=path(life, step, record=record),
            proven=not evidence.everywhere and not life.translated,
        )
    return None


def _of_another_owner(evidence: Evidence, hit: Hit) -> Finding:
    """Blame the search that read the records of several users for the answer from the record of another user."""
    searches = (span for span in evidence.results.searches if any(v.ref == hit.ref for v in span.inputs))
    search = next(searches, hit.reader)
    reason = (
        f"The search reads records of several users. The answer comes from {quoted(hit.content)}, "
        "which belongs to another user."
    )
    return Finding(
        failure_type=FailureType.RETRIEVAL,
        operation=search,
        variable=hit.ref,
        strength=CERTAIN,
        reason=reason,
        advice="Filter the search by the user who asks.",
        steps=(Step("hit", hit.ref, search.origin, hit.content),),
    )


def _unasked(evidence: Evidence, life: Life) -> float:
    """Return the strength without a search: weak when a search may exist that nothing joins to the answer."""
    return WEAK if Incomplete.UNKNOWN_TURN in evidence.answer_span.incomplete else strength_of(life)


def _nearness(evidence: Evidence, record: Version) -> tuple[bool, float, int]:
    """Sort the records that hold the answer: what memory stored before what a conversation repeats."""
    return ref_kind(record.ref) != RefKind.STATE, evidence.compare.about(record.content), record.span.start


def _refuting(evidence: Evidence) -> tuple[Life, ...]:
    """Return the life of the evidence for a question on a false premise: the named memory refutes the premise."""
    premise_is_false = evidence.wish.form is AnswerForm.ABSTAIN and not evidence.abstained
    return (evidence.life_of_evidence,) if premise_is_false and not evidence.borrowed else ()
