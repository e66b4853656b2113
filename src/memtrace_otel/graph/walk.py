"""Single steps along the flow of information: the nodes before and after a node."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from memtrace_otel.graph.graph import GraphData
from memtrace_otel.graph.keys import EdgeType, NodeKey, OperationKey, VersionKey
from memtrace_otel.model import OperationSpan
from memtrace_otel.semconv import READING_KINDS


def reach(start: NodeKey, step: Callable[[NodeKey], Iterable[NodeKey]]) -> set[NodeKey]:
    """Return the nodes that steps lead to, without `start`.

    An operation is returned and not entered: the step from a version passes through the operation already.
    """
    found: set[NodeKey] = set()
    waiting: list[NodeKey] = [start]
    while waiting:
        for node in step(waiting.pop()):
            if node not in found:
                found.add(node)
                if isinstance(node, VersionKey):
                    waiting.append(node)
    return found - {start}


def sources_of(graph: GraphData, node: NodeKey) -> Iterator[NodeKey]:
    """Yield the nodes directly before a node: of an operation the versions that it read or looked at."""
    if isinstance(node, VersionKey):
        yield from feeding(graph, node)
    elif node in graph:
        yield from (version for version, _ in graph.in_edges(node))


def feeding(graph: GraphData, version: NodeKey, without: frozenset[str] = frozenset()) -> Iterator[NodeKey]:
    """Yield the producer of a version and the versions that fed it (not all that the producer read).

    Inputs of a role in `without` are skipped.
    """
    if version not in graph:
        return
    for operation, _, edge in graph.in_edges(version, data=True):
        if edge["type"] != EdgeType.PRODUCED:
            continue
        yield operation
        fed = edge["sources"]
        reads = [(v, read) for v, _, read in graph.in_edges(operation, data=True) if read["index"] >= 0]
        if reads or fed is not None:
            yield from (v for v, r in reads if (fed is None or r["index"] in fed) and r["role"] not in without)
        else:
            yield from _inputs_around(graph, operation, without)


def following(graph: GraphData, node: NodeKey) -> Iterator[NodeKey]:
    """Yield the nodes directly after a node: of a version its readers and the versions that it fed."""
    if node not in graph:
        return
    if isinstance(node, OperationKey):
        yield from (v for _, v, edge in graph.out_edges(node, data=True) if edge["type"] == EdgeType.PRODUCED)
        if any(edge["index"] >= 0 for *_, edge in graph.in_edges(node, data=True)):
            yield from _outputs_inside(graph, node)
        return
    for _, operation, read in graph.out_edges(node, data=True):
        if read["type"] != EdgeType.READ:
            continue
        yield operation
        if read["index"] < 0:  # looked at and left alone
            continue
        # Only the versions that the input fed, not the other outputs of the operation.
        for _, version, edge in graph.out_edges(operation, data=True):
            if edge["type"] == EdgeType.PRODUCED and (edge["sources"] is None or read["index"] in edge["sources"]):
                yield version
        yield from _outputs_inside(graph, operation)


def _inputs_around(graph: GraphData, operation: NodeKey, without: frozenset[str]) -> Iterator[NodeKey]:
    """A writing step that recorded no inputs worked on the inputs of the operation around it."""
    span: OperationSpan | None = graph.nodes[operation]["span"]
    while span is not None and span.kind not in READING_KINDS:
        outer = OperationKey(span.origin)
        reads = [(v, read["role"]) for v, _, read in graph.in_edges(outer, data=True) if read["index"] >= 0]
        if reads:
            yield outer
            yield from (v for v, role in reads if role not in without)
            return
        span = graph.enclosing(span.origin)


def _outputs_inside(graph: GraphData, operation: NodeKey) -> Iterator[NodeKey]:
    """The reverse of `_inputs_around`: versions written inside an operation by steps that recorded no inputs."""
    waiting = [] if _is_reading(graph, operation) else _steps(graph, operation)
    while waiting:
        inner = waiting.pop()
        if _is_reading(graph, inner) or any(edge["index"] >= 0 for *_, edge in graph.in_edges(inner, data=True)):
            continue
        for _, version, edge in graph.out_edges(inner, data=True):
            if edge["type"] == EdgeType.PRODUCED and edge["sources"] is None:
                yield inner
                yield version
        waiting += _steps(graph, inner)


def _steps(graph: GraphData, operation: NodeKey) -> list[OperationKey]:
    return [OperationKey(span.origin) for span in reversed(graph.enclosed(operation.origin))]


def _is_reading(graph: GraphData, operation: NodeKey) -> bool:
    span: OperationSpan | None = graph.nodes[operation]["span"]
    return span is None or span.kind in READING_KINDS
