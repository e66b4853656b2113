"""The evolution graph as data: operations, versions of variables, and the edges between them."""

from __future__ import annotations

import heapq
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from functools import cached_property
from typing import TYPE_CHECKING, Any

import networkx as nx

from memtrace_otel.graph.assembly import time_order
from memtrace_otel.graph.keys import EdgeType, NodeKey, NodeType, OperationKey, Read, VersionKey
from memtrace_otel.graph.writes import evolves
from memtrace_otel.model import OperationSpan, ref_kind
from memtrace_otel.semconv import RefKind

if TYPE_CHECKING:
    _Graph = nx.MultiDiGraph[NodeKey]
else:
    _Graph = nx.MultiDiGraph


class GraphData(_Graph):
    """A networkx.MultiDiGraph of operations and versions; do not change it. `EvolutionGraph` adds the queries.

    Nodes, with their attributes:

    - `OperationKey(origin)`: type "operation", span (`OperationSpan` with its continuation parts joined, and with the
      answer as its last input where a judge names none; None when only readers know of the operation), scope (own or
      inherited), parent (origin of the enclosing operation or ''), judged (origin of the answering operation that its
      evaluation is about or ''), incomplete (tuple of reasons).
    - `VersionKey(ref, origin, scope)`: type "version", variable (`Variable` as produced, of a root as first read; None
      when its producer does not list the version), content (best known text or ''), truncated (content is cut), unknown
      (the version should have an origin and has none).

    Edges, with their attributes:

    - version -> operation: type "read", role, index, score, rank, inferred.
    - operation -> version: type "produced", action, role, index, sources (indices of the inputs that fed the version,
      None for all).
    - operation -> version: type "reported", action, role, index: an operation inside this one produced the version.
    - new version -> previous version: type "supersedes", inferred.
    """

    # --- operations ----------------------------------------------------------------------------------------------
    def operation(self, origin: str) -> OperationSpan | None:
        """Return the span of an origin (also of one of its parts); None when the operation is unknown or missing."""
        node = self._operation_node(origin)
        return None if node is None else node["span"]

    def missing(self) -> Iterator[str]:
        """Yield the origins that spans name and whose operations are missing."""
        yield from (key.origin for key in self if isinstance(key, OperationKey) and self.nodes[key]["span"] is None)

    def operations(
        self, kind: str | None = None, scope: str | None = None, trace_id: str | None = None
    ) -> list[OperationSpan]:
        """Return the known operations in time order. The scope is the inherited scope where a span has none."""
        spans = self._spans if trace_id is None else self._traces.get(trace_id, [])
        return [
            span
            for span in spans
            if (kind is None or span.kind == kind) and (scope is None or self.scope_of(span.origin) == scope)
        ]

    def enclosing(self, origin: str) -> OperationSpan | None:
        """Return the nearest operation around this one. Spans between them that are no operations are skipped."""
        node = self._operation_node(origin)
        return self.operation(node["parent"]) if node is not None and node["parent"] else None

    def enclosed(self, origin: str) -> list[OperationSpan]:
        """Return the operations directly inside this one, in time order."""
        return list(self._children.get(self._main(origin), ()))

    def scope_of(self, origin: str) -> str:
        """Return the scope of an operation, its own or that of the nearest enclosing span; '' when unknown."""
        node = self._operation_node(origin)
        return "" if node is None else node["scope"]

    def judged(self, origin: str) -> str:
        """Return the origin of the answering operation that an evaluation on this one is about, '' without one."""
        node = self._operation_node(origin)
        return "" if node is None else self._main(node["judged"])

    def inputs(self, origin: str) -> list[Read]:
        """Return the reads of an operation in the order of its inputs; versions that the operation left alone come
        last."""
        operation = OperationKey(self._main(origin))
        if operation not in self:
            return []
        reads = [_read(version, operation, edge) for version, _, edge in self.in_edges(operation, data=True)]
        return sorted(reads, key=lambda read: (read.considered, read.index, read.version))

    def outputs(self, origin: str) -> list[VersionKey]:
        """Return the versions of the outputs in order: produced by the operation, or by an operation inside it."""
        operation = OperationKey(self._main(origin))
        if operation not in self:
            return []
        edges = sorted((edge["index"], node) for _, node, edge in self.out_edges(operation, data=True))
        return list(dict.fromkeys(node for _, node in edges if isinstance(node, VersionKey)))

    # --- versions ------------------------------------------------------------------------------------------------
    def version(self, ref: str, origin: str = "", scope: str = "") -> VersionKey:
        """Return the key of (ref, origin) in the graph: parts and repetitions lead to the real producer."""
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
        """Return the best known content: the producer's, else the longest whole content that a reader saw, else ''."""
        node = self.nodes.get(self.version(*version))
        return "" if node is None else node["content"]

    def digest(self, version: VersionKey) -> str:
        """Return the content digest that the producer (of a root: its first reader) recorded, '' without one."""
        node = self.nodes.get(self.version(*version))
        return "" if node is None or node["variable"] is None else node["variable"].digest

    def is_tombstone(self, version: VersionKey) -> bool:
        """Return whether the version says that the record was deleted."""
        node = self.nodes.get(self.version(*version))
        return node is not None and node["variable"] is not None and node["variable"].action == "DELETE"

    def has_failed(self, version: VersionKey) -> bool:
        """Return whether the operation that was to write this version of a record ended with an error, and no operation
        outside has read the version since."""
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
        return sorted(self._versions)

    def scopes(self) -> list[str]:
        """Return the memory scopes of the operations, sorted."""
        return sorted({scope for span in self._spans if (scope := self.scope_of(span.origin))})

    def versions(self, ref: str) -> list[VersionKey]:
        """Return every version of a variable, failed writes too: replaced before replacing, then by time."""
        return self._causal_order(self._versions.get(ref, ()))

    def history(self, ref: str, scope: str = "") -> list[VersionKey]:
        """Return the versions of a variable without failed writes: replaced before replacing, then by time.

        With a scope, only versions written in that scope, or of unknown origin and read there.
        """
        if ref not in self._histories:
            self._histories[ref] = [key for key in self.versions(ref) if not self.has_failed(key)]
        return [key for key in self._histories[ref] if not scope or self.scope_of_version(key) == scope]

    def scope_of_version(self, version: VersionKey) -> str:
        """Return the scope that a version was written in. For a root: the scope of its readers. Where the writing
        operation is missing: the scope of the first reader that has a scope."""
        if not version.origin:
            return version.scope
        if self.operation(version.origin) is not None:
            return self.scope_of(version.origin)
        return next(filter(None, (self.scope_of(read.operation.origin) for read in self.readers(version))), "")

    def messages(self, scope: str | None = None) -> list[VersionKey]:
        """Return the messages, in time order of their first reading (or producing)."""
        found = [
            key
            for ref, keys in self._versions.items()
            if ref_kind(ref) == RefKind.MESSAGE
            for key in keys
            if scope is None or self.scope_of_version(key) == scope
        ]
        return sorted(found, key=lambda key: (self.time_of(key), key))

    def time_of(self, version: VersionKey) -> int:
        """Return when a version was written (ns): end of its producer, else start of its first reader, else 0."""
        span = self.operation(version.origin) if version.origin else None
        if span is not None:
            return max(span.start, span.end)
        starts = (self._time(read.operation)[0] for read in self.readers(version))
        return min(starts, default=0)

    # --- completeness --------------------------------------------------------------------------------------------
    @property
    def incomplete(self) -> dict[str, int]:
        """Why the graph is incomplete: reason -> number of operations (of spans for `lost_spans`)."""
        return self.graph.get("incomplete", {})

    def count_reasons(self) -> dict[str, int]:
        """Count the incomplete operations by reason."""
        operations = (node for _, node in self.nodes(data=True) if node["type"] == NodeType.OPERATION)
        return dict(sorted(Counter(str(reason) for node in operations for reason in node["incomplete"]).items()))

    # --- inside --------------------------------------------------------------------------------------------------
    def existing(self, node: NodeKey) -> NodeKey:
        """Return the key of a node in the graph: parts and repetitions lead to the real key."""
        return OperationKey(self._main(node.origin)) if isinstance(node, OperationKey) else self.version(*node)

    def _main(self, origin: str) -> str:
        return self.graph.get("mains", {}).get(origin, origin)

    def _operation_node(self, origin: str) -> dict[str, Any] | None:
        return self.nodes.get(OperationKey(self._main(origin)))

    @cached_property
    def _spans(self) -> list[OperationSpan]:
        spans = (self.nodes[key]["span"] for key in self if isinstance(key, OperationKey))
        return sorted((span for span in spans if span is not None), key=time_order)

    @cached_property
    def _traces(self) -> dict[str, list[OperationSpan]]:
        traces: defaultdict[str, list[OperationSpan]] = defaultdict(list)
        for span in self._spans:
            traces[span.trace_id].append(span)
        return traces

    @cached_property
    def _children(self) -> dict[str, list[OperationSpan]]:
        children: defaultdict[str, list[OperationSpan]] = defaultdict(list)
        for span in self._spans:
            children[self.nodes[OperationKey(span.origin)]["parent"]].append(span)
        return children

    @cached_property
    def _versions(self) -> dict[str, list[VersionKey]]:
        versions: defaultdict[str, list[VersionKey]] = defaultdict(list)
        for key in self:
            if isinstance(key, VersionKey):
                versions[key.ref].append(key)
        return versions

    @cached_property
    def _histories(self) -> dict[str, list[VersionKey]]:
        return {}

    def _is_within(self, origin: str, outer: str) -> bool:
        span = self.operation(origin)
        while span is not None and span.origin != outer:
            span = self.enclosing(span.origin)
        return span is not None

    def _time(self, operation: NodeKey) -> tuple[int, int, str]:
        span = self.nodes[operation]["span"]
        return (0, 0, operation[0]) if span is None else time_order(span)

    def _causal_order(self, versions: Iterable[VersionKey]) -> list[VersionKey]:
        """Sort topologically along `supersedes`; in a circle (bad data) the earliest version in time comes first."""
        times = {version: (self.time_of(version), version) for version in versions}
        before: dict[VersionKey, set[VersionKey]] = {version: set() for version in times}
        after: dict[VersionKey, list[VersionKey]] = {version: [] for version in times}
        for version in times:
            for _, old, edge in self.out_edges(version, data=True):
                if edge["type"] == EdgeType.SUPERSEDES and isinstance(old, VersionKey) and old in times:
                    before[version].add(old)
                    after[old].append(version)
        ready = [times[version] for version in times if not before[version]]
        heapq.heapify(ready)
        waiting = sorted(times.values(), reverse=True)
        ordered: dict[VersionKey, None] = {}
        while len(ordered) < len(times):
            _, version = heapq.heappop(ready) if ready else waiting.pop()
            if version in ordered:
                continue
            ordered[version] = None
            for later in after[version]:
                before[later].discard(version)
                if not before[later]:
                    heapq.heappush(ready, times[later])
        return list(ordered)


def _read(version: NodeKey, operation: NodeKey, edge: dict[str, Any]) -> Read:
    assert isinstance(version, VersionKey)
    assert isinstance(operation, OperationKey)
    return Read(version, operation, edge["role"], edge["index"], edge["score"], edge["rank"], edge["inferred"])
