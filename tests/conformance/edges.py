"""Counts the dependencies of a recorded run by the names that the list gives to operations and variables."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection

from memtrace_otel import semconv
from memtrace_otel.graph import EvolutionGraph, VersionKey
from memtrace_otel.model import OperationSpan, ref_kind, split_ref

_NAMES = {"memory": "MU", "answer": "prediction", "expected": "golden_answers", "message": "message", "query": "query"}


def purpose(span: OperationSpan | None) -> str:
    """Name of an operation in the system."""
    return str(span.attributes.get(semconv.OP_PURPOSE, "")) if span else ""


def name(graph: EvolutionGraph, version: VersionKey) -> str:
    """Name of a variable: the kind for a single variable of a kind, the id for a readable id, else the step that made
    the variable."""
    kind, id = ref_kind(version.ref), split_ref(version.ref)[1]
    if kind in _NAMES:
        return _NAMES[kind]
    if kind == "context":
        return "context"
    if kind in ("prompt", "state"):
        return re.sub(r"[-.][0-9a-f]*\d[0-9a-f]*$", "", id)
    return "temporary_variable" if kind == "chunk" else purpose(graph.operation(version.origin))


def operation_of(graph: EvolutionGraph, origin: str, operations: Collection[str]) -> str:
    """The operation of the list that a span is, or is a step of."""
    span = graph.operation(origin)
    while span is not None and purpose(span) not in operations:
        span = graph.enclosing(span.origin)
    return purpose(span)


def dependencies(graph: EvolutionGraph, operations: Collection[str]) -> Counter[tuple[str, str, str]]:
    """Count (operation, from, to): an input fed an output, or, of a search, the query found a memory."""
    counted: Counter[tuple[str, str, str]] = Counter()
    for span in graph.operations():
        inside = operation_of(graph, span.origin, operations)
        for made in graph.outputs(span.origin):
            if made.origin == span.origin:
                counted.update((inside, name(graph, source), name(graph, made)) for source in graph.sources(made))
        reads = graph.inputs(span.origin)
        if span.kind == "retrieve":
            counted.update(
                (inside, name(graph, one.version), name(graph, other.version))
                for one in reads
                for other in reads
                if one.role != "hit" and other.role == "hit"
            )
    return counted


def count(graph: EvolutionGraph, operations: Collection[str]) -> Counter[str]:
    """Count the operations of the list."""
    return Counter(purpose(span) for span in graph.operations() if purpose(span) in operations)
