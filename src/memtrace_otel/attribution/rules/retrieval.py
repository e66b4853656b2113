"""Rule `retrieval`: a live record held the answer, and the answering model never saw the record."""

from __future__ import annotations

from memtrace_otel.attribution.evidence import Evidence, Life
from memtrace_otel.attribution.expectation import AnswerForm
from memtrace_otel.attribution.lineage import Version
from memtrace_otel.attribution.rules.finding import WEAK, Finding, path, quoted, strength_of, wanted
from memtrace_otel.attribution.search_results import Hit
from memtrace_otel.model import OperationSpan, Step
from memtrace_otel.semconv import FailureType, Incomplete, Role


def retrieval(evidence: Evidence) -> Finding | None:
    """Blame the search of this question that should have returned the surviving record, or the step that dropped it."""
    for life in evidence.missing or _refuting(evidence):
        if life.returned or not life.surviving:
            continue
        record = max(life.surviving, key=lambda v: (evidence.compare.about(v.content), v.span.start))
        operation, how = _missed(evidence, record)
        held = f" {quoted(record.content)}" if record.content else ""
        held += f" with {wanted(life)}" if life.guessed else ""
        reason = f"The record{held} was in the store when the question came and {how}."
        strength = strength_of(life) if evidence.results.searches else WEAK
        step = Step("not_retrieved", record.ref, operation.origin)
        return Finding(
            failure_type=FailureType.RETRIEVAL,
            operation=operation,
            variable=record.ref,
            strength=strength,
            reason=reason,
            steps=path(life, step, record=record),
        )
    return None


def _refuting(evidence: Evidence) -> tuple[Life, ...]:
    """Return the life of the evidence for a question on a false premise: the named memory refutes the premise."""
    premise_is_false = evidence.wish.form is AnswerForm.ABSTAIN and not evidence.abstained
    return (evidence.life_of_evidence,) if premise_is_false and not evidence.borrowed else ()


def _missed(evidence: Evidence, record: Version) -> tuple[OperationSpan, str]:
    results = evidence.results
    if not results.searches:
        unjoined = Incomplete.UNKNOWN_TURN in evidence.answer_span.incomplete
        known = ", as far as is known: no span around the turn joins this answer with its search" if unjoined else ""
        return evidence.answer_span, f"was not handed to the answering model{known}"
    name = evidence.record(record)
    dropped = next((hit for hit in results.dropped if hit.record == name), None)
    if dropped is not None:
        return _dropping(evidence, dropped), "was found, but dropped before the model answered"
    low = next((hit for hit in results.ranked_out if hit.record == name), None)
    if low is not None:
        return low.reader, f"was only candidate {low.rank} of the search, not among the hits"
    scoped = [s for s in results.searches if evidence.lineage.scope(s) == evidence.lineage.scope(record.span)]
    if not scoped:
        return results.searches[-1], "lies in a scope that was not searched"
    count = sum(variable.role == Role.HIT for variable in scoped[-1].inputs)
    hits = "the one hit" if count == 1 else f"among the {count} hits"
    return scoped[-1], f"is not {hits} of the search"


def _dropping(evidence: Evidence, hit: Hit) -> OperationSpan:
    """Return the step after the search that returned the hit, or the search when no step is recorded."""
    later = [s for s in evidence.results.searches if any(v.origin == hit.reader.origin for v in s.inputs)]
    return later[0] if later else hit.reader
