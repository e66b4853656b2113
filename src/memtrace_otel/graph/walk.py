"""Walks along the flow of information. They see every node at most once per phase, so circles in bad data end."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Protocol

from memtrace_otel.graph.keys import RECORD_KINDS, EdgeType, NodeKey, OperationKey, VersionKey
from memtrace_otel.model import OperationSpan, ref_kind
from memtrace_otel.semconv import READING_KINDS, OpKind, RefKind

if TYPE_CHECKING:
    from memtrace_otel.graph.evolution import EvolutionGraph

ANSWERING = frozenset({OpKind.RESPOND, OpKind.JUDGE})


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


class Flow(Protocol):
    """Where versions came from: what `question_slice` asks."""

    def fetch(self, nodes: Iterable[NodeKey]) -> None:
        """Hear which nodes are asked about next."""
        ...

    def reads(self, operation: OperationKey) -> Iterable[VersionKey]:
        """Return the versions that an operation read or looked at."""
        ...

    def feeding(self, version: VersionKey) -> Iterable[NodeKey]:
        """Return the producer of a version first, then the versions that fed it, and operations on that way."""
        ...

    def asked(self, operation: OperationKey) -> Collection[str] | None:
        """Return the questions that an answering operation worked on, None when it is none."""
        ...


def question_slice(flow: Flow, answer: OperationKey, outputs: Iterable[VersionKey]) -> set[NodeKey]:
    """Return an answering operation, its outputs and all they came from, without nodes of other questions.

    Two phases. In front of the records, another answering operation is entered only when it worked on the same
    question. Behind a record lies its making: there no question and no answering operation is entered. A judgement
    without a question has that of the answer.
    """
    found: set[NodeKey] = {answer, *outputs}
    waiting: list[tuple[VersionKey, bool]] = [(version, False) for version in flow.reads(answer)]
    own = {version.ref for version, _ in waiting if ref_kind(version.ref) == RefKind.QUERY}
    if not own and not any(isinstance(made, VersionKey) and ref_kind(made.ref) == RefKind.ANSWER for made in found):
        judged = [version for version, _ in waiting if ref_kind(version.ref) == RefKind.ANSWER]
        flow.fetch(judged)
        for producer in (next(iter(flow.feeding(version)), None) for version in judged):
            own.update((flow.asked(producer) or ()) if isinstance(producer, OperationKey) else ())
    seen: tuple[set[VersionKey], set[VersionKey]] = set(), set()

    def allowed(operation: OperationKey, making: bool) -> bool:
        if operation == answer or (asked := flow.asked(operation)) is None:
            return True
        return not making and (not asked or not own.isdisjoint(asked))

    while waiting:
        flow.fetch([version for version, _ in waiting])
        wave, waiting = waiting, []
        for version, making in wave:
            if version in seen[making]:
                continue
            kind = ref_kind(version.ref)
            if making and kind == RefKind.QUERY:
                continue
            seen[making].add(version)
            found.add(version)
            making = making or kind in RECORD_KINDS
            for place, node in enumerate(flow.feeding(version)):
                if isinstance(node, VersionKey):
                    waiting.append((node, making))
                elif allowed(node, making):
                    found.add(node)
                elif place == 0:  # the producer
                    break
    return found


class GraphFlow:
    """The `Flow` of a graph in memory."""

    def __init__(self, graph: EvolutionGraph) -> None:
        self._graph = graph

    def fetch(self, nodes: Iterable[NodeKey]) -> None:
        """Everything is here."""

    def reads(self, operation: OperationKey) -> Iterator[VersionKey]:
        """As `Flow`."""
        return (read.version for read in self._graph.inputs(operation.origin))

    def feeding(self, version: VersionKey) -> Iterator[NodeKey]:
        """As `Flow`."""
        return feeding(self._graph, version)

    def asked(self, operation: OperationKey) -> set[str] | None:
        """As `Flow`."""
        span: OperationSpan | None = self._graph.nodes[operation]["span"]
        if span is None or span.kind not in ANSWERING:
            return None
        return {variable.ref for variable in span.inputs if ref_kind(variable.ref) == RefKind.QUERY}


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


def _steps(graph: EvolutionGraph, operation: NodeKey) -> list[OperationKey]:
    return [OperationKey(span.origin) for span in reversed(graph.enclosed(operation.origin))]


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
