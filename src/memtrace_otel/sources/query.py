"""What is searched for in a backend: `SpanQuery`, and the names by which changes of a record are found."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from memtrace_otel import semconv, settings
from memtrace_otel.model import OperationSpan, has_failing_evaluation, is_unique, make_origin
from memtrace_otel.semconv import READING_KINDS, WRITING_ACTIONS


@dataclass(frozen=True, slots=True)
class SpanQuery:
    """Spans that fulfil every condition; None or an empty set is no condition.

    `scopes`, `kinds`: the span is of one of these. `names`: the span reads one of these origins, or lists one of these
    refs among its outputs. `failing`: the span holds an evaluation that fails an answer. `services`: the only services
    to search, when an earlier search has shown which ones have such spans.
    """

    scopes: frozenset[str] | None = None
    kinds: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    failing: bool = False
    services: frozenset[str] = frozenset()

    def matches(self, span: OperationSpan) -> bool:
        """Return whether a span fulfils the conditions (`services` aside)."""
        return (
            (self.scopes is None or span.scope in self.scopes)
            and (not self.kinds or span.kind in self.kinds)
            and (not self.names or not self.names.isdisjoint(names_of(span)))
            and (not self.failing or has_failing_evaluation(span, settings.EVALUATION_THRESHOLD.read()))
        )


def names_of(span: OperationSpan) -> set[str]:
    """Return the origins among the inputs of a span and the refs among its outputs."""
    return {variable.origin for variable in span.inputs}.union(variable.ref for variable in span.outputs)


def operation_names(kind: str) -> list[str]:
    """Return the GenAI operation names that mean a kind on a span without a kind."""
    return [name for name, meant in semconv.KIND_OF_OPERATION.items() if meant == kind]


def may_write(span: OperationSpan) -> bool:
    """Return whether a span may have written a record, itself or on a continuation span."""
    if span.kind in READING_KINDS:
        return any(output.action in WRITING_ACTIONS for output in span.outputs)
    return bool(span.kind or span.outputs)


def unique_refs(spans: Iterable[OperationSpan]) -> set[str]:
    """Return the refs among the outputs that mean the same record in all memories."""
    return {output.ref for span in spans for output in span.outputs if is_unique(output.ref)}


def near_failures(spans: Iterable[OperationSpan]) -> list[str]:
    """Return the origins of all spans of the traces in which a write failed.

    A failed write may still leave a record; a later reader of this record may name any of these origins.
    """
    spans = list(spans)
    writers = [span for span in spans if span.outputs]
    listing = {make_origin(span.trace_id, span.parent_id) if span.part else span.origin for span in writers}
    failed = {s.trace_id for s in spans if s.status == "error" and may_write(s) and s.origin in listing}
    return [span.origin for span in spans if span.trace_id in failed]
