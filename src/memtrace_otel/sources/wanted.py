"""What is looked for in a backend, and what a judging span says of an answer."""

from __future__ import annotations

from dataclasses import dataclass

from memtrace_otel import semconv, settings
from memtrace_otel.model import OperationSpan, answers_named, is_failing, is_origin, label_and_score
from memtrace_otel.otlp.decode import IndexedFields


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
            and (not self.failing or says_failing(span))
        )


def named(span: OperationSpan) -> set[str]:
    """Return the origins among the inputs of a span and the refs among its outputs."""
    return {variable.origin for variable in span.inputs}.union(variable.ref for variable in span.outputs)


def operation_names(kind: str) -> list[str]:
    """Return the GenAI operation names that stand for a kind where a span does not say it."""
    return [name for name, stood_for in semconv.KIND_OF_OPERATION.items() if stood_for == kind]


def says_failing(span: OperationSpan) -> bool:
    """Tell whether an evaluation on a span calls an answer a failure. Our own verdicts are no evaluations."""
    if span.instrumentation_scope == semconv.ATTRIBUTION_SCOPE:
        return False
    threshold = settings.EVALUATION_THRESHOLD.read()
    told = [span.attributes, *(event.attributes for event in span.events if event.name == semconv.EVALUATION_EVENT)]
    return any(is_failing(*label_and_score(attributes), threshold) for attributes in told)


def evaluates(span: OperationSpan) -> bool:
    """Tell whether a span holds an evaluation, whatever that says."""
    told = (span.attributes, *(event.attributes for event in span.events))
    names = (semconv.EVALUATION_LABEL, semconv.EVALUATION_SCORE)
    return span.kind == semconv.OpKind.JUDGE or any(name in attributes for attributes in told for name in names)


def judged_traces(span: OperationSpan) -> set[str]:
    """Return the ids of the traces whose answer an evaluation on this span may be about."""
    named = answers_named(span)
    found = {variable.origin[:32] for variable in named if is_origin(variable.origin)}
    in_role = any(variable.role == semconv.Role.ANSWER for variable in named)
    return found if found and in_role else {span.trace_id, *found}


def indexed_judged_traces(trace_id: str, fields: IndexedFields) -> set[str]:
    """Return the same, and more, of what is indexed of a span: its origins may have any role."""
    others = () if fields.kind == semconv.OpKind.RESPOND else filter(is_origin, fields.origins)
    return {trace_id, *(origin[:32] for origin in others)} if fields.evaluations else set()
