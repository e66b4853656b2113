"""Attribution by rules: a failed answer in, a verdict out. Same graph, same verdict; no exception for odd data."""

from __future__ import annotations

import hashlib
import logging

from memtrace_otel.attribution.evidence import Evidence
from memtrace_otel.attribution.failures import find_failures
from memtrace_otel.attribution.lineage import Lineage, lineage_of
from memtrace_otel.attribution.ranking import confidence, rank
from memtrace_otel.attribution.rules import RULES, Finding
from memtrace_otel.graph import EvolutionGraph
from memtrace_otel.model import Alternative, Failure, OperationSpan, Verdict
from memtrace_otel.semconv import FailureType, Incomplete
from memtrace_otel.settings import CAPTURE_CONTENT
from memtrace_otel.version import __version__

METHOD = "rules"
MAX_ALTERNATIVES = 3

_log = logging.getLogger(__name__)


def attribute(graph: EvolutionGraph, failure: Failure) -> Verdict:
    """Return the verdict on one failed answer; `unknown` with `complete` False when the trace does not hold enough."""
    lineage = lineage_of(graph)
    try:
        evidence = Evidence(lineage, failure)
        findings = rank([finding for rule in RULES if (finding := rule(evidence)) is not None])
        complete = evidence.complete and all(finding.proven for finding in findings)
    except Exception as error:  # one bad case must not stop the others; its contents stay out of the log
        _log.warning("attribution of %s failed: %s", failure.answer_span.origin, type(error).__name__)
        findings, complete = [], False
    if not findings:
        findings, complete = [_undecided(failure)], False
    best, *others = findings
    verdict_confidence = confidence(best, findings, complete)
    alternatives = tuple(
        _alternative(lineage, other, min(confidence(other, findings, complete), verdict_confidence))
        for other in others[:MAX_ALTERNATIVES]
    )
    operation = _known(lineage, best.operation)
    return Verdict(
        failure=failure,
        failure_type=best.failure_type,
        trace_id=operation.trace_id if operation else "",
        span_id=operation.span_id if operation else "",
        operation=operation.name if operation else "",
        operation_kind=operation.kind if operation else "",
        variable=best.variable,
        confidence=verdict_confidence,
        reason=best.reason,
        evidence=best.steps,
        alternatives=alternatives,
        complete=complete,
        when=operation.start if operation else 0,
        attribution_id=_identity(failure, best, operation),
        method=METHOD,
        version=__version__,
    )


def attribute_trace(graph: EvolutionGraph, trace_id: str | None = None) -> list[Verdict]:
    """Return the verdicts on every failed answer of a trace, of the whole graph when no trace is named."""
    return [attribute(graph, failure) for failure in find_failures(graph, trace_id)]


def _undecided(failure: Failure) -> Finding:
    if Incomplete.CONTENT_OFF in failure.answer_span.incomplete:
        lacking = f"contents ({CAPTURE_CONTENT.env} was not SPAN_ONLY)"
    else:
        lacking = "enough of the path from message to answer" if failure.expected else "the expected answer"
    return Finding(
        FailureType.UNKNOWN, None, "", 0.0, f"The trace does not hold {lacking}, so no operation can be blamed."
    )


def _alternative(lineage: Lineage, finding: Finding, value: float) -> Alternative:
    operation = _known(lineage, finding.operation)
    ids = (operation.trace_id, operation.span_id) if operation else ("", "")
    return Alternative(finding.failure_type, *ids, value)


def _known(lineage: Lineage, operation: OperationSpan | None) -> OperationSpan | None:
    """Only operations of the graph are ever named."""
    return lineage.span(operation.origin) if operation else None


def _identity(failure: Failure, finding: Finding, operation: OperationSpan | None) -> str:
    parts = (
        failure.answer_span.origin,
        finding.failure_type,
        operation.origin if operation else "",
        finding.variable,
        __version__,
    )
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:32]
