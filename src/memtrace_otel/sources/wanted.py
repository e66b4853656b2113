"""What is looked for in a backend."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

from memtrace_otel import semconv, settings
from memtrace_otel.model import OperationSpan, has_failing_evaluation, is_origin, judged_traces, make_origin
from memtrace_otel.otlp.decode import IndexedFields
from memtrace_otel.sources.rows import NewSpan


@dataclass(frozen=True, slots=True)
class Wanted:
    """Spans of any of `scopes`, any of `kinds`, that name one of `names` (an origin among their inputs, a ref among
    their outputs), that call an answer a failure. What is not given (None, nothing) does not restrict. `services` are
    those alone that have such spans, where a search has shown it."""

    scopes: frozenset[str] | None = None
    kinds: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    failing: bool = False
    services: frozenset[str] = frozenset()

    def holds(self, span: OperationSpan) -> bool:
        """Tell whether a span is such a one."""
        return (
            (self.scopes is None or span.scope in self.scopes)
            and (not self.kinds or span.kind in self.kinds)
            and (not self.names or not self.names.isdisjoint(named(span)))
            and (not self.failing or has_failing_evaluation(span, settings.EVALUATION_THRESHOLD.read()))
        )


def named(span: OperationSpan) -> set[str]:
    """Return the origins among the inputs of a span and the refs among its outputs."""
    return {variable.origin for variable in span.inputs}.union(variable.ref for variable in span.outputs)


def operation_names(kind: str) -> list[str]:
    """Return the GenAI operation names that stand for a kind where a span does not say it."""
    return [name for name, stood_for in semconv.KIND_OF_OPERATION.items() if stood_for == kind]


def indexed_judged_traces(trace_id: str, fields: IndexedFields) -> set[str]:
    """Return the same, and more, of what is indexed of a span: its origins may have any role."""
    others = () if fields.kind == semconv.OpKind.RESPOND else filter(is_origin, fields.origins)
    return {trace_id, *(origin[:32] for origin in others)} if fields.evaluations else set()


def find_failing(
    spans: Iterable[NewSpan], read: Callable[[str], list[OperationSpan]], known: dict[str, None]
) -> list[str]:
    """Return the ids of the traces with a failing evaluation among these spans, by their order."""
    threshold = settings.EVALUATION_THRESHOLD.read()
    found: dict[str, None] = {}
    for new in spans:
        origin = make_origin(new.trace_id, new.span_id)
        if new.fields.evaluations and origin not in known:
            judging = [span for span in read(new.trace_id) if span.origin == origin]
            failing = [span for span in judging if has_failing_evaluation(span, threshold)]
            found |= dict.fromkeys(trace_id for span in failing for trace_id in sorted(judged_traces(span)))
            known[origin] = None
    return list(found)
