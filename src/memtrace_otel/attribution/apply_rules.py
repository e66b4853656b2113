"""Apply the rules to failed answers: one verdict for each failure."""

from __future__ import annotations

import logging
import traceback
from dataclasses import replace

from memtrace_otel.attribution.entailment import Reader, Reading
from memtrace_otel.attribution.evidence import REDACTED_MARK, Evidence
from memtrace_otel.attribution.expectation import AnswerForm
from memtrace_otel.attribution.failures import expected_known, find_failures
from memtrace_otel.attribution.lineage import Lineage, lineage_of
from memtrace_otel.attribution.ranking import DECISIVE, confidence, rank
from memtrace_otel.attribution.reading import can_read, read_case
from memtrace_otel.attribution.rules import RULES, Finding
from memtrace_otel.attribution.rules.finding import SURE
from memtrace_otel.attribution.text import terms
from memtrace_otel.graph import EvolutionGraph
from memtrace_otel.model import Alternative, Failure, OperationSpan, Verdict, attribution_id, make_origin
from memtrace_otel.semconv import FailureType, Incomplete, OpKind
from memtrace_otel.settings import CAPTURE_CONTENT, PREVIEW_BYTES, REDACT_PATTERNS
from memtrace_otel.version import __version__

METHOD, WITH_MODEL = "rules", "rules+model"
MAX_ALTERNATIVES = 3
_BY_MEANING = (FailureType.ANNOTATION, FailureType.JUDGE, FailureType.UNKNOWN)

_log = logging.getLogger(__name__)
_logged: set[str] = set()
"""Names of the rules and steps whose traceback was logged."""


def attribute(
    graph: EvolutionGraph, failure: Failure, *, everywhere: bool = False, reading: Reading | None = None
) -> Verdict:
    """Return the verdict on one failed answer. The same graph gives the same verdict.

    A verdict is `complete` when nothing on its path is missing, its confidence is at least `DECISIVE`, and no finding
    of another type is as strong. The verdict is `unknown` when the trace does not hold enough, or when a rule raises:
    the traceback of a rule is logged once, later failures of that rule only at debug level. `everywhere`: memory
    scopes that were not searched count, too. `reading`: what a model said of the texts of the case.
    """
    lineage = lineage_of(graph)
    method = WITH_MODEL if reading else METHOD
    findings, whole = _findings(lineage, failure, everywhere, reading)
    if not findings:
        findings, whole = [_undecided(failure)], False
    best, *others = findings
    hidden = _hidden(graph, best)
    whole = whole and not hidden
    verdict_confidence = confidence(best, findings, whole)
    doubts = _doubts(failure, verdict_confidence, best, others)
    alternatives = tuple(
        _alternative(lineage, other, min(confidence(other, findings, whole), verdict_confidence))
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
        reason=" ".join((best.reason, *hidden, *doubts)),
        advice=best.advice,
        evidence=best.steps,
        alternatives=alternatives,
        complete=whole and not doubts,
        when=operation.start if operation else 0,
        attribution_id=attribution_id(
            failure.answer_span.origin, best.failure_type, operation.origin if operation else "", best.variable, method
        ),
        method=method,
        version=__version__,
    )


def is_open(verdict: Verdict) -> bool:
    """Return whether an operation outside of the loaded memory may explain the failure: no finding is decisive, or
    words alone acquit every operation."""
    acquitted = verdict.failure_type == FailureType.ANNOTATION and verdict.confidence < SURE
    return (verdict.confidence < DECISIVE or acquitted) and bool(verdict.failure.expected)


def attribute_everywhere(graph: EvolutionGraph, failure: Failure, verdict: Verdict) -> Verdict:
    """Return the verdict with the memories of every scope, `verdict` when that one says as much.

    Another memory counts only as the place where the search should have looked, unless the answer has no memory of its
    own.
    """
    wider = attribute(graph, failure, everywhere=True)
    lineage = lineage_of(graph)
    scoped = bool(lineage.scope(failure.answer_span))
    if wider.confidence <= verdict.confidence:
        return verdict
    decisive = graph.operation(make_origin(wider.trace_id, wider.span_id)) if wider.span_id else None
    if (
        wider.failure_type == FailureType.EXTRACTION
        and decisive is not None
        and (decisive.kind == OpKind.RESPOND or not lineage.scope(decisive))
    ):
        return wider  # a tool of the answer read what this call noted; without a scope it is of no other memory
    says_more = not scoped or wider.failure_type == FailureType.RETRIEVAL
    return wider if says_more and _is_as_near(wider, verdict) else verdict


def _is_as_near(wider: Verdict, verdict: Verdict) -> bool:
    """Return whether the text of another memory shares as much with the question as the message that supports the given
    answer: a common number alone does not take back an `annotation`."""
    if verdict.failure_type != FailureType.ANNOTATION:
        return True
    asked = terms(verdict.failure.question)
    there, here = (len(asked & terms(v.evidence[0].note)) if v.evidence else 0 for v in (wider, verdict))
    return there >= here


def attribute_with_model(graph: EvolutionGraph, verdict: Verdict, reader: Reader) -> Verdict:
    """Return the verdict of rules and model where the rules are unsure, else `verdict`.

    Where the model does not answer, `verdict` stays and `model_problem` says why.
    """
    failure = verdict.failure
    try:
        evidence = Evidence(lineage_of(graph), failure)
        if not is_unsure(evidence, verdict) or not can_read(evidence):
            return verdict
        reading, replies = read_case(evidence, reader)
    except Exception as error:
        _log_error("the choice of texts", failure, error)
        return replace(verdict, model_problem=f"the texts could not be chosen: {type(error).__name__}")
    found = attribute(graph, failure, reading=reading) if reading else verdict
    return replace(found, model=reader.name, tokens=replies.tokens, model_problem=replies.problem)


def is_unsure(evidence: Evidence, verdict: Verdict) -> bool:
    """Return whether a verdict of the rules hangs on the meaning of texts: no certain loss, or the expected words were
    told by no message. Rules compare dates better than a model: a date that a message told is sure."""
    untold = any(life.need is None or not life.said for life in evidence.lives)
    if untold or evidence.wish.form is AnswerForm.TIME:
        return untold
    return verdict.confidence < SURE or verdict.failure_type in _BY_MEANING


def attribute_trace(graph: EvolutionGraph, trace_id: str | None = None) -> list[Verdict]:
    """Return the verdicts of the rules on every failed answer of a trace, of the whole graph when no trace is named."""
    return [attribute(graph, failure) for failure in find_failures(graph, trace_id)]


def _findings(
    lineage: Lineage, failure: Failure, everywhere: bool, reading: Reading | None
) -> tuple[list[Finding], bool]:
    """Return the ranked findings of all rules, and whether the evidence is complete. One bad case does not stop others:
    an exception gives no finding."""
    step = "evidence"
    findings: list[Finding] = []
    try:
        evidence = Evidence(lineage, failure, everywhere=everywhere, reading=reading)
        for rule in RULES:
            step = rule.__module__.rpartition(".")[2]
            if (finding := rule(evidence)) is not None:
                findings.append(finding)
        step = "ranking"
        return rank(findings), evidence.complete and all(finding.proven for finding in findings)
    except Exception as error:
        _log_error(step, failure, error)
        return [], False


def _log_error(step: str, failure: Failure, error: Exception) -> None:
    """Log the error with the traceback the first time that this step fails. The message of the exception may hold
    contents: only its type is logged."""
    told = f"attribution of {failure.answer_span.origin} failed in {step}: {type(error).__name__}"
    if step in _logged:
        _log.debug(told)
        return
    _logged.add(step)
    _log.warning("%s\n%s", told, "".join(traceback.format_tb(error.__traceback__)).rstrip())


def _undecided(failure: Failure) -> Finding:
    """Say what is missing, and the command that adds what is missing."""
    if Incomplete.CONTENT_OFF in failure.answer_span.incomplete:
        reason = f"The trace does not hold contents ({CAPTURE_CONTENT.env} was not SPAN_ONLY)"
        advice = "Record with contents: memtrace-otel run --content."
    elif failure.expected:
        reason = "No recorded operation lost words of the expected answer, as far as the rules compare words"
        advice = f"Let a model read the texts: memtrace-otel attribute {failure.trace_id} --method rules+model."
    else:
        reason = "The trace does not hold the expected answer"
        advice = f'Tell the right answer: memtrace-otel feedback {failure.trace_id} --label fail --expected "...".'
    return Finding(
        failure_type=FailureType.UNKNOWN,
        operation=None,
        variable="",
        strength=0.0,
        reason=f"{reason}, so no operation can be blamed.",
        advice=advice,
    )


def _doubts(failure: Failure, sure: float, best: Finding, others: list[Finding]) -> list[str]:
    """Say why a finding is a guess: its confidence is low, or a finding of another type is as strong."""
    if best.failure_type == FailureType.UNKNOWN:
        return []
    if sure < DECISIVE:
        told = (
            "a message with the words of the expected answer"
            if failure.evidence
            else "the messages that told the answer"
        )
        return [f"This is a guess without {told if expected_known(failure) else 'the expected answer'}."]
    tied = (other for other in others if other.strength >= best.strength and other.failure_type != best.failure_type)
    return [f"A failure of type {other.failure_type} explains the answer as well." for other in tied][:1]


def _hidden(graph: EvolutionGraph, finding: Finding) -> list[str]:
    """Say which contents on the path of a finding were cut or redacted, with the setting."""
    versions = [version for step in finding.steps for version in graph.versions(step.ref)]
    found: list[str] = []
    if any(graph.nodes[version]["truncated"] for version in versions):
        found.append(f"A content on this path was cut ({PREVIEW_BYTES.env}).")
    if any(REDACTED_MARK in graph.content(version) for version in versions):
        found.append(f"A content on this path was redacted ({REDACT_PATTERNS.env}).")
    return found


def _alternative(lineage: Lineage, finding: Finding, value: float) -> Alternative:
    operation = _known(lineage, finding.operation)
    ids = (operation.trace_id, operation.span_id) if operation else ("", "")
    return Alternative(finding.failure_type, *ids, value)


def _known(lineage: Lineage, operation: OperationSpan | None) -> OperationSpan | None:
    """Only operations of the graph are ever named."""
    return lineage.span(operation.origin) if operation else None
