"""Walks along the flow of information. They see every node at most once per phase, so circles in bad data end."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from memtrace_otel.graph.keys import READING_KINDS, RECORD_KINDS, EdgeType, NodeKey, OperationKey, VersionKey
from memtrace_otel.model import OperationSpan, ref_kind
from memtrace_otel.semconv import OpKind, RefKind

if TYPE_CHECKING:
    from memtrace_otel.graph.evolution import EvolutionGraph

_ANSWERING = frozenset({OpKind.RESPOND, OpKind.JUDGE})


def backward(graph: EvolutionGraph, start: NodeKey) -> set[NodeKey]:
    """Return everything that `start` came from."""
    return _reach(start, lambda node: feeding(graph, node) if isinstance(node, VersionKey) else reads(graph, node))


def forward(graph: EvolutionGraph, start: NodeKey) -> set[NodeKey]:
    """Return everything that `start` went to."""
    return _reach(start, lambda node: following(graph, node))


def message_slice(graph: EvolutionGraph, message: VersionKey) -> set[NodeKey]:
    """Return a message and all that came of it, up to the answers that used it and their judgements.

    An answer is where its way ends: what a memory makes of an answer is the story of that answer.
    """
    found: set[NodeKey] = {message} if message in graph else set()
    waiting: list[NodeKey] = list(found)
    while waiting:
        for node in following(graph, waiting.pop()):
            if node in found:
                continue
            found.add(node)
            if isinstance(node, VersionKey):
                if ref_kind(node.ref) == RefKind.ANSWER:
                    found.update(read.operation for read in graph.readers(node) if _judges(graph, read.operation))
                else:
                    waiting.append(node)
    return found


def following(graph: EvolutionGraph, node: NodeKey) -> Iterator[NodeKey]:
    """Yield what a node led to directly: of a version its readers and the versions it fed."""
    if node not in graph:
        return
    if isinstance(node, OperationKey):
        yield from (v for _, v, edge in graph.out_edges(node, data=True) if edge["type"] == EdgeType.PRODUCED)
        if any(edge["index"] >= 0 for *_, edge in graph.in_edges(node, data=True)):
            yield from _inside(graph, node)
        return
    for _, operation, read in graph.out_edges(node, data=True):
        if read["type"] != EdgeType.READ:
            continue
        yield operation
        if read["index"] < 0:  # looked at and left alone
            continue
        # The versions it fed; an operation reached here does not spread to its other outputs.
        for _, version, edge in graph.out_edges(operation, data=True):
            if edge["type"] == EdgeType.PRODUCED and (edge["sources"] is None or read["index"] in edge["sources"]):
                yield version
        yield from _inside(graph, operation)


def question_slice(graph: EvolutionGraph, answer: OperationKey) -> set[NodeKey]:
    """Return the answering operation, its outputs and all they came from, without nodes of other questions.

    Two phases. In front of the records, another answering operation is entered only when it worked on the same
    question. Behind a record lies its making: there no question and no answering operation is entered.
    """
    if answer not in graph:
        return set()
    own = {read.version.ref for read in graph.inputs(answer.origin) if ref_kind(read.version.ref) == RefKind.QUERY}

    def allowed(node: NodeKey, making: bool) -> bool:
        if isinstance(node, VersionKey):
            return not (making and ref_kind(node.ref) == RefKind.QUERY)
        span: OperationSpan | None = graph.nodes[node]["span"]
        if node == answer or span is None or span.kind not in _ANSWERING:
            return True
        asked = {variable.ref for variable in span.inputs if ref_kind(variable.ref) == RefKind.QUERY}
        return not making and (not asked or bool(asked & own))

    found: set[NodeKey] = {answer, *(v for v in graph.outputs(answer.origin))}
    seen: set[tuple[NodeKey, bool]] = {(answer, False)}
    waiting: list[tuple[NodeKey, bool]] = [(node, False) for node in reads(graph, answer)]
    while waiting:
        node, making = waiting.pop()
        if (node, making) in seen or not allowed(node, making):
            continue
        seen.add((node, making))
        found.add(node)
        if isinstance(node, VersionKey):
            making = making or ref_kind(node.ref) in RECORD_KINDS
            producer = graph.producer(node)
            if producer is not None and allowed(producer, making):
                waiting.extend((source, making) for source in feeding(graph, node))
    return found


def reads(graph: EvolutionGraph, operation: NodeKey) -> Iterator[NodeKey]:
    """Yield the versions that an operation read or looked at."""
    if operation in graph:
        yield from (version for version, _ in graph.in_edges(operation))


def feeding(graph: EvolutionGraph, version: NodeKey, without: frozenset[str] = frozenset()) -> Iterator[NodeKey]:
    """Yield the producer of a version and the versions that fed it (not all that the producer read).

    Inputs of a role in `without` are passed over.
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
            yield from _around(graph, operation, without)


def _inside(graph: EvolutionGraph, operation: NodeKey) -> Iterator[NodeKey]:
    """The reverse of `_around`: versions written inside an operation by steps that recorded no inputs."""
    if _is_reading(graph, operation):
        return
    for span in graph.enclosed(operation.origin):
        inner = OperationKey(span.origin)
        if _is_reading(graph, inner) or any(edge["index"] >= 0 for *_, edge in graph.in_edges(inner, data=True)):
            continue
        for _, version, edge in graph.out_edges(inner, data=True):
            if edge["type"] == EdgeType.PRODUCED and edge["sources"] is None:
                yield inner
                yield version
        yield from _inside(graph, inner)


def _is_reading(graph: EvolutionGraph, operation: NodeKey) -> bool:
    span: OperationSpan | None = graph.nodes[operation]["span"]
    return span is None or span.kind in READING_KINDS


def _judges(graph: EvolutionGraph, operation: NodeKey) -> bool:
    span: OperationSpan | None = graph.nodes[operation]["span"]
    return span is not None and span.kind == OpKind.JUDGE


def _around(graph: EvolutionGraph, operation: NodeKey, without: frozenset[str]) -> Iterator[NodeKey]:
    """A writing step that recorded no inputs worked on those of the operation around it."""
    seen: set[str] = set()
    span: OperationSpan | None = graph.nodes[operation]["span"]
    while span is not None and span.origin not in seen and span.kind not in READING_KINDS:
        seen.add(span.origin)
        outer = OperationKey(span.origin)
        reads = [(v, read["role"]) for v, _, read in graph.in_edges(outer, data=True) if read["index"] >= 0]
        if reads:
            yield outer
            yield from (v for v, role in reads if role not in without)
            return
        span = graph.enclosing(span.origin)


def _reach(start: NodeKey, following: Callable[[NodeKey], Iterator[NodeKey]]) -> set[NodeKey]:
    """Nodes from `start` on. Operations met on the way are named but not entered: their flow was followed already."""
    found: set[NodeKey] = set()
    waiting: list[NodeKey] = [start]
    while waiting:
        for node in following(waiting.pop()):
            if node not in found:
                found.add(node)
                if isinstance(node, VersionKey):
                    waiting.append(node)
    return found - {start}
