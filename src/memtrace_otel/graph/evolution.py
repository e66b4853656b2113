"""How information evolved: operations, versions of variables, and who read, produced and replaced what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import networkx as nx

from memtrace_otel.graph.assembly import time_order
from memtrace_otel.graph.history import causal_order
from memtrace_otel.graph.indexes import Indexes
from memtrace_otel.graph.keys import EdgeType, NodeKey, NodeType, OperationKey, Read, VersionKey
from memtrace_otel.graph.paths import Paths, paths_between
from memtrace_otel.graph.state import Change, changes_between, state_at
from memtrace_otel.graph.walk import GraphFlow, backward, feeding, forward, message_slice, question_slice
from memtrace_otel.graph.writes import evolves
from memtrace_otel.model import OperationSpan, ref_kind
from memtrace_otel.semconv import Incomplete, RefKind

_OF_THE_WHOLE = (Incomplete.BOUNDED, Incomplete.LOST_SPANS)

if TYPE_CHECKING:
    _Graph = nx.MultiDiGraph[NodeKey]
else:
    _Graph = nx.MultiDiGraph


class EvolutionGraph(_Graph):
    """A networkx.MultiDiGraph of operations and versions; made by `build_graph`; not to be changed.

    Nodes, with their attributes:

    - `OperationKey(origin)`: type "operation", span (`OperationSpan` with its continuation parts joined, and with the
      answer as its last input where a judge names none; None when only readers know of it), scope (own or inherited),
      parent (origin of the enclosing operation or ''), judged (origin of the answering operation that its evaluation is
      about or ''), incomplete (tuple of reasons).
    - `VersionKey(ref, origin, scope)`: type "version", variable (`Variable` as produced, of a root as first read; None
      when its producer does not list it), content (best known text or ''), truncated (content is cut), unknown (its
      origin should be known and is not).

    Edges, with their attributes:

    - version -> operation: type "read", role, index, score, rank, inferred.
    - operation -> version: type "produced", action, role, index, sources (indices of the inputs that fed it, None for
      all).
    - operation -> version: type "reported", action, role, index: an operation inside this one produced it.
    - new version -> previous version: type "supersedes", inferred.
    """

    # --- operations ----------------------------------------------------------------------------------------------
    def operation(self, origin: str) -> OperationSpan | None:
        """Return the span of an origin (of one of its parts, too); None when it is unknown or missing."""
        node = self.nodes.get(OperationKey(self._main(origin)))
        return None if node is None else node["span"]

    def missing(self) -> Iterator[str]:
        """Yield the origins that spans name and that are not there."""
        yield from (key.origin for key in self if isinstance(key, OperationKey) and self.nodes[key]["span"] is None)

    def operations(
        self, kind: str | None = None, scope: str | None = None, trace_id: str | None = None
    ) -> list[OperationSpan]:
        """Return the known operations in time order; scopes are the inherited ones where a span has none."""
        spans = self.indexes.spans if trace_id is None else self.indexes.traces.get(trace_id, [])
        return [
            span
            for span in spans
            if (kind is None or span.kind == kind) and (scope is None or self.scope_of(span.origin) == scope)
        ]

    def enclosing(self, origin: str) -> OperationSpan | None:
        """Return the nearest operation around this one (spans between them that are no operations are skipped)."""
        node = self.nodes.get(OperationKey(self._main(origin)))
        return self.operation(node["parent"]) if node is not None and node["parent"] else None

    def enclosed(self, origin: str) -> list[OperationSpan]:
        """Return the operations directly inside this one, in time order."""
        return list(self.indexes.children.get(self._main(origin), ()))

    def scope_of(self, origin: str) -> str:
        """Return the scope of an operation, its own or that of the nearest enclosing span; '' when unknown."""
        node = self.nodes.get(OperationKey(self._main(origin)))
        return "" if node is None else node["scope"]

    def judged(self, origin: str) -> str:
        """Return the origin of the answering operation that an evaluation on this one is about, '' without one."""
        node = self.nodes.get(OperationKey(self._main(origin)))
        return "" if node is None else self._main(node["judged"])

    def inputs(self, origin: str) -> list[Read]:
        """Return what an operation read, in the order of its inputs; what it left alone comes last."""
        operation = OperationKey(self._main(origin))
        if operation not in self:
            return []
        reads = [_read(version, operation, edge) for version, _, edge in self.in_edges(operation, data=True)]
        return sorted(reads, key=lambda read: (read.considered, read.index, read.version))

    def outputs(self, origin: str) -> list[VersionKey]:
        """Return the versions an operation produced, or listed because an operation inside it did, in output order."""
        operation = OperationKey(self._main(origin))
        if operation not in self:
            return []
        edges = sorted((edge["index"], node) for _, node, edge in self.out_edges(operation, data=True))
        return list(dict.fromkeys(node for _, node in edges if isinstance(node, VersionKey)))

    # --- versions ------------------------------------------------------------------------------------------------
    def version(self, ref: str, origin: str = "", scope: str = "") -> VersionKey:
        """Return the key under which (ref, origin) is in the graph: parts and repetitions lead to the real producer."""
        origin = self._main(origin)
        key = VersionKey(ref, origin, "" if origin else scope)
        key = self.graph.get("repeats", {}).get(key, key)
        if key in self or not origin or OperationKey(origin) not in self:
            return key
        return next((read.version for read in self.inputs(origin) if read.version.ref == ref), key)

    def producer(self, version: VersionKey) -> OperationKey | None:
        """Return the operation that produced a version, None for roots and unknown origins."""
        version = self.version(*version)
        return OperationKey(version.origin) if version.origin and version in self else None

    def readers(self, version: VersionKey) -> list[Read]:
        """Return the reads of a version in time order of the readers."""
        version = self.version(*version)
        if version not in self:
            return []
        reads = [
            _read(version, operation, edge)
            for _, operation, edge in self.out_edges(version, data=True)
            if edge["type"] == EdgeType.READ
        ]
        return sorted(reads, key=lambda read: (*self._time(read.operation), read.index))

    def content(self, version: VersionKey) -> str:
        """Return the best known content: the producer's, else the longest whole one a reader saw, else ''."""
        node = self.nodes.get(self.version(*version))
        return "" if node is None else node["content"]

    def digest(self, version: VersionKey) -> str:
        """Return the content digest that the producer (of a root: its first reader) recorded, '' when it did not."""
        node = self.nodes.get(self.version(*version))
        return "" if node is None or node["variable"] is None else node["variable"].digest

    def is_tombstone(self, version: VersionKey) -> bool:
        """Tell whether the version says that the record was deleted."""
        node = self.nodes.get(self.version(*version))
        return node is not None and node["variable"] is not None and node["variable"].action == "DELETE"

    def has_failed(self, version: VersionKey) -> bool:
        """Tell whether a record was to get this version from an operation that ended with an error, and nobody outside
        that operation has read it since."""
        version = self.version(*version)
        span, output = self.operation(version.origin), self.nodes[version]["variable"] if version in self else None
        if span is None or span.status != "error" or output is None or not evolves(output):
            return False
        return all(self._is_within(read.operation.origin, span.origin) for read in self.readers(version))

    def writers(self, ref: str, scope: str | None = None) -> list[OperationSpan]:
        """Return the known operations that wrote a version of `ref`, in causal order of the versions."""
        spans = (self.operation(key.origin) for key in self.history(ref) if key.origin)
        return [span for span in spans if span and (scope is None or self.scope_of(span.origin) == scope)]

    def refs(self) -> list[str]:
        """Return the ref of every variable, sorted."""
        return sorted(self.indexes.versions)

    def scopes(self) -> list[str]:
        """Return the scope of every owner whose memory operations touched, sorted."""
        return sorted({scope for span in self.indexes.spans if (scope := self.scope_of(span.origin))})

    def versions(self, ref: str) -> list[VersionKey]:
        """Return every node of a variable, those that have failed too, in the order of its history."""
        return causal_order(self, self.indexes.versions.get(ref, ()), self.time_of)

    def history(self, ref: str, scope: str = "") -> list[VersionKey]:
        """Return the versions of a variable, what was replaced before what replaced it; time breaks ties.

        Without those that have failed. With a scope, only versions written in that scope, or of unknown origin and read
        there.
        """
        held = [key for key in self.versions(ref) if not self.has_failed(key)]
        return [key for key in held if not scope or self.scope_of_version(key) == scope]

    def scope_of_version(self, version: VersionKey) -> str:
        """Return the scope that a version was written in; of a root, that of its readers; where the operation that
        wrote it is missing, that of the first reader that has one."""
        if not version.origin:
            return version.scope
        if self.operation(version.origin) is not None:
            return self.scope_of(version.origin)
        return next(filter(None, (self.scope_of(read.operation.origin) for read in self.readers(version))), "")

    def messages(self, scope: str | None = None) -> list[VersionKey]:
        """Return the messages, in time order of their first reading (or producing)."""
        found = [
            key
            for ref, keys in self.indexes.versions.items()
            if ref_kind(ref) == RefKind.MESSAGE
            for key in keys
            if scope is None or self.scope_of_version(key) == scope
        ]
        return sorted(found, key=lambda key: (self.time_of(key), key))

    def time_of(self, version: VersionKey) -> int:
        """When a version was written, as far as known: end of its producer, else start of its first reader."""
        span = self.operation(version.origin) if version.origin else None
        if span is not None:
            return max(span.start, span.end)
        starts = (self._time(read.operation)[0] for read in self.readers(version))
        return min(starts, default=0)

    def sources(self, version: VersionKey, *, without: Collection[str] = ()) -> list[VersionKey]:
        """Return the versions that directly fed a version, except those read in a role of `without`."""
        nodes = feeding(self, self.version(*version), frozenset(without))
        return list(dict.fromkeys(node for node in nodes if isinstance(node, VersionKey)))

    # --- reachability --------------------------------------------------------------------------------------------
    def ancestors(self, node: NodeKey) -> set[NodeKey]:
        """Return every operation and version that information in `node` came through, without `node`."""
        return backward(self, self._existing(node))

    def descendants(self, node: NodeKey) -> set[NodeKey]:
        """Return every operation and version that information in `node` went to, without `node`."""
        return forward(self, self._existing(node))

    def slice_of_answer(self, origin: str) -> set[NodeKey]:
        """Return what an answering span says and all that it came from: context, versions, writers, facts, messages.

        Never a node of another question: behind a record neither questions nor answers are followed.
        """
        answer = OperationKey(self._main(origin))
        return question_slice(GraphFlow(self), answer, self.outputs(origin)) if answer in self else set()

    def slice_of_message(self, message: VersionKey) -> set[NodeKey]:
        """Return a message and all that came of it, up to the answers that used it and their judgements."""
        return message_slice(self, self.version(*message))

    def part(self, nodes: Iterable[NodeKey]) -> EvolutionGraph:
        """Return a graph of these nodes and the edges between them; an operation stays as it was recorded. What the
        whole lacks is counted as far as it is of these operations; what is of none (`bounded`) goes for each part."""
        part = EvolutionGraph()
        part.graph.update(self.graph)
        chosen = set(nodes)
        part.add_nodes_from((node, data) for node, data in self.nodes(data=True) if node in chosen)
        for source, target, key, edge in self.edges(chosen, keys=True, data=True):
            if target in chosen:
                part.add_edge(source, target, key=key, **edge)
        counted = self.count_reasons()
        of_none = {
            reason: count
            for reason, count in self.incomplete.items()
            if reason in _OF_THE_WHOLE or counted.get(reason) != count
        }
        part.graph["incomplete"] = dict(sorted((part.count_reasons() | of_none).items()))
        return part

    def paths(self, source: NodeKey, target: NodeKey, *, limit: int = 100) -> Paths:
        """Return the ways that information took from one node to another, at most `limit`, shortest first."""
        return paths_between(self, self._existing(source), self._existing(target), limit)

    # --- a memory at a time --------------------------------------------------------------------------------------
    def state(self, scope: str, time: int | None = None) -> list[VersionKey]:
        """Return the version of every record that a scope held at `time` (ns since the epoch, None: now), by ref."""
        return state_at(self, scope, time)

    def diff(self, scope: str, since: int, until: int | None = None) -> list[Change]:
        """Return what a scope learnt, changed and forgot between two times, and by which operation, in time order.

        Raises ValueError when `since` is later than `until`.
        """
        return changes_between(self, scope, since, until)

    def count_reasons(self) -> dict[str, int]:
        """Count the operations that know less than they should, by reason."""
        counts = Counter(
            str(reason)
            for _, node in self.nodes(data=True)
            if node["type"] == NodeType.OPERATION
            for reason in node["incomplete"]
        )
        return dict(sorted(counts.items()))

    @property
    def incomplete(self) -> dict[str, int]:
        """Reasons why the graph knows less than it should, with the number of operations (of spans for lost_spans)."""
        return self.graph.get("incomplete", {})

    # --- inside --------------------------------------------------------------------------------------------------
    @cached_property
    def indexes(self) -> Indexes:
        """Made on first use; whoever changes the graph keeps them up to date."""
        return Indexes(self.nodes.items())

    def _main(self, origin: str) -> str:
        return self.graph.get("mains", {}).get(origin, origin)

    def _is_within(self, origin: str, outer: str) -> bool:
        seen: set[str] = set()
        span = self.operation(origin)
        while span is not None and span.origin not in seen:
            if span.origin == outer:
                return True
            seen.add(span.origin)
            span = self.enclosing(span.origin)
        return False

    def _existing(self, node: NodeKey) -> NodeKey:
        return OperationKey(self._main(node.origin)) if isinstance(node, OperationKey) else self.version(*node)

    def _time(self, operation: NodeKey) -> tuple[int, int, str]:
        span = self.nodes[operation]["span"]
        return (0, 0, operation[0]) if span is None else time_order(span)


def _read(version: NodeKey, operation: NodeKey, edge: dict[str, Any]) -> Read:
    assert isinstance(version, VersionKey)
    assert isinstance(operation, OperationKey)
    return Read(version, operation, edge["role"], edge["index"], edge["score"], edge["rank"], edge["inferred"])
