"""The component of a memory system that a verdict points to, and the kind of information that was lost."""

from __future__ import annotations

import re
from enum import StrEnum

from memtrace_otel.attribution.expectation import AnswerForm, expectation
from memtrace_otel.attribution.rules.missed import filter_fields
from memtrace_otel.attribution.text import negated, numbers
from memtrace_otel.attribution.vocabulary import CORRECTS
from memtrace_otel.graph import EvolutionGraph
from memtrace_otel.model import OperationSpan, Variable, Verdict, make_origin
from memtrace_otel.semconv import (
    GEN_AI_RETRIEVAL_TOP_K,
    RETRIEVAL_THRESHOLD,
    FailureType,
    OpKind,
    Role,
)

_SEARCHES = frozenset({OpKind.RETRIEVE, OpKind.RERANK, OpKind.ASSEMBLE})
_CLOCK = re.compile(r"\b\d{1,2}:\d\d\b")
_TITLE = re.compile(r'"[^"]*"|“[^”]*”')
"""A title in quotation marks: its words deny nothing."""
_CAPITAL = re.compile(r"\b[A-Z][a-z]+")


class Component(StrEnum):
    """What a user can change in a memory system."""

    EXTRACTION = "extraction prompt"
    UPDATE = "update prompt"
    ANSWERING = "answering prompt"
    K = "k"
    THRESHOLD = "threshold"
    FILTER = "filter"
    RERANKER = "reranker"
    CONTENT_LIMIT = "content limit"


class Information(StrEnum):
    """The kind of information that an answer lacks."""

    CORRECTION = "corrections"
    DATE = "dates and times"
    QUANTITY = "quantities"
    NEGATION = "negations"
    NAME = "names"
    OTHER = "other details"


_PROMPTS = {
    FailureType.EXTRACTION: Component.EXTRACTION,
    FailureType.UPDATE: Component.UPDATE,
    FailureType.DELETION: Component.UPDATE,
    FailureType.RESPONSE: Component.ANSWERING,
}


def component_of(verdict: Verdict, graph: EvolutionGraph) -> Component | None:
    """Return the component to change; None for `judge`, `annotation`, `unknown` and a search that is not recorded."""
    if verdict.failure_type != FailureType.RETRIEVAL:
        return _PROMPTS.get(FailureType(verdict.failure_type))
    operation = graph.operation(make_origin(verdict.trace_id, verdict.span_id)) if verdict.span_id else None
    return _of_retrieval(verdict.variable, operation, graph) if operation else None


def _of_retrieval(record: str, operation: OperationSpan, graph: EvolutionGraph) -> Component:
    """Return the part of the reading side that lost a record."""
    if operation.kind == OpKind.RERANK:
        return Component.RERANKER
    beside = graph.operations(trace_id=operation.trace_id)
    if operation.kind == OpKind.RESPOND:
        return Component.CONTENT_LIMIT if any(span.kind in _SEARCHES for span in beside) else Component.ANSWERING
    role = Role.HIT if operation.kind == OpKind.RETRIEVE else None
    if any(v.ref == record and role in (v.role, None) for v in operation.inputs):
        return Component.CONTENT_LIMIT
    searches = [span for span in beside if span.kind == OpKind.RETRIEVE and span.start <= operation.start]
    return _of_search(record, operation if operation.kind == OpKind.RETRIEVE else [operation, *searches][-1], graph)


def _of_search(record: str, search: OperationSpan, graph: EvolutionGraph) -> Component:
    """Return the parameter of a search that left out a record: the first bar that the record did not pass."""
    scope = graph.scope_of(search.origin)
    if scope not in {graph.scope_of(writer.origin) for writer in graph.writers(record)} | {""}:
        return Component.FILTER
    candidate = next((v for v in _with_role(search, Role.CANDIDATE) if v.ref == record), None)
    threshold = search.attributes.get(RETRIEVAL_THRESHOLD)
    if candidate and candidate.score and isinstance(threshold, int | float) and candidate.score < threshold:
        return Component.THRESHOLD
    if candidate is None and filter_fields(search):
        return Component.FILTER
    limit, hits = search.attributes.get(GEN_AI_RETRIEVAL_TOP_K), len(_with_role(search, Role.HIT))
    is_full = hits >= limit if isinstance(limit, int | float) else hits > 0
    return Component.K if is_full else Component.FILTER


def _with_role(span: OperationSpan, role: Role) -> list[Variable]:
    return [variable for variable in span.inputs if variable.role == role]


def information_of(verdict: Verdict) -> Information:
    """Return the kind of information that the expected answer asks for."""
    failure = verdict.failure
    notes = [step.note for step in verdict.evidence if step.note]
    if any(step.role == "not_renewed" for step in verdict.evidence) or any(map(CORRECTS.search, notes)):
        return Information.CORRECTION
    wish = expectation(failure.question, failure.expected, known=bool(failure.expected))
    if wish.form is AnswerForm.TIME or _CLOCK.search(failure.expected):
        return Information.DATE
    if numbers(failure.expected):
        return Information.QUANTITY
    if wish.form in (AnswerForm.POLAR, AnswerForm.ABSTAIN) or negated(_TITLE.sub("", failure.expected)):
        return Information.NEGATION
    inside = {word for note in notes for word in re.findall(r"(?<=[a-z,] )[A-Z][a-z]+", note)}
    return Information.NAME if inside & set(_CAPITAL.findall(failure.expected)) else Information.OTHER
