"""What is looked for in a backend."""

from __future__ import annotations

from dataclasses import dataclass

from memtrace_otel import semconv, settings
from memtrace_otel.model import OperationSpan, has_failing_evaluation


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
