"""New spans extend a built graph: only what their traces and variables touch is built anew."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable
from typing import Any

from memtrace_otel.graph.build import Part, build_part
from memtrace_otel.graph.contents import ContentChooser
from memtrace_otel.graph.evolution import EvolutionGraph
from memtrace_otel.graph.indexes import Indexes
from memtrace_otel.graph.keys import NodeKey, OperationKey, VersionKey
from memtrace_otel.graph.lone import LoneVersions
from memtrace_otel.graph.spans import SpanIndex
from memtrace_otel.model import OperationSpan
from memtrace_otel.semconv import Incomplete


class GrowingGraph:
    """A graph that takes more spans at any time; after each `extend` it is what `build_graph` makes of all of them.

    The cost of `extend` goes with the spans of the traces that name the same records as the new ones, in whatever
    memory, not with the graph. `whole` as in `build_graph`. Not safe to use from several threads at once.
    """

    def __init__(self, spans: Iterable[OperationSpan] = (), *, whole: bool = True) -> None:
        self._spans = SpanIndex(spans)
        self._whole = whole
        self.graph = EvolutionGraph()
        self._build()

    def extend(self, spans: Iterable[OperationSpan]) -> set[str]:
        """Add spans, in any order and repeated or not; return the ids of the traces that had something new."""
        traces = self._spans.add(spans)
        if not traces:
            return traces
        refs = self._spans.refs(traces)
        lone = {ref for ref in refs if self._spans.is_lone(ref)}
        near = self._spans.naming(refs - lone) | traces
        keyed = bool(self._keyed)
        part = build_part(self._spans.spans(near), keyed=keyed)
        self._learn_keyed(part, traces)
        if bool(self._keyed) != keyed:  # every content has to be judged anew
            self._build()
            return traces
        self._take_out(traces, refs - lone)
        self._put_in(part, traces, refs - lone)
        self._mend_lone(lone, traces)
        self._mend_reasons(part, traces, refs, lone)
        self._finish()
        return traces

    # --- the whole -----------------------------------------------------------------------------------------------
    def _build(self) -> None:
        part = build_part(self._spans.spans())
        self._keyed: set[str] = set()
        """Traces that show that digests are keyed."""
        self._learn_keyed(part, {operation.trace_id for operation in part.graph.operations()})
        self._reasons = part.reasons
        self._gaps = defaultdict(set, {ref: set(gaps) for ref, gaps in part.gaps.items()})
        self._lineage: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for gaps in self._gaps.values():
            for origin, reason in gaps:
                self._lineage[origin][reason] += 1
        self._operations: defaultdict[str, set[OperationKey]] = defaultdict(set)
        self._counts: Counter[str] = Counter()
        self._lone = LoneVersions(self.graph)
        self._parts: defaultdict[str, list[str]] = defaultdict(list)
        self._outer: defaultdict[str, list[VersionKey]] = defaultdict(list)
        self.graph.clear()
        self.graph.indexes = Indexes()
        for node, attributes in part.graph.nodes(data=True):
            self._add(node, attributes)
        for source, target, key, edge in part.graph.edges(keys=True, data=True):
            self.graph.add_edge(source, target, key=key, **edge)
        self.graph.graph.update(mains={}, repeats={})
        self._tell(part)
        self._finish()

    def _learn_keyed(self, part: Part, traces: set[str]) -> None:
        self._keyed -= traces
        self._keyed |= {t for t in traces if ContentChooser(part.graph.operations(trace_id=t)).keyed}

    def _finish(self) -> None:
        counts = {str(reason): count for reason, count in self._counts.items() if count}
        losses = self._spans.losses
        if lost := max(losses.told, losses.missing if self._whole else 0):
            counts[str(Incomplete.LOST_SPANS)] = lost
        self.graph.graph["incomplete"] = dict(sorted(counts.items()))

    # --- nodes and edges -----------------------------------------------------------------------------------------
    def _add(self, node: NodeKey, attributes: dict[str, Any]) -> None:
        self.graph.add_node(node, **attributes)
        self.graph.indexes.add(node, attributes)
        if isinstance(node, OperationKey):
            self._operations[node.origin[:32]].add(node)
            self._counts.update(attributes["incomplete"])

    def _remove(self, node: NodeKey) -> None:
        self.graph.indexes.remove(node, self.graph.nodes[node])
        if isinstance(node, OperationKey):
            self._operations[node.origin[:32]].discard(node)
            self._counts.subtract(self.graph.nodes[node]["incomplete"])
        self.graph.remove_node(node)

    def _take_out(self, traces: set[str], refs: set[str]) -> None:
        """Remove the operations of the traces, the versions of the refs, and what was there for these alone."""
        makers: set[NodeKey] = set()
        for ref in refs:
            for version in self._versions_of(ref):
                makers.update(self.graph.predecessors(version))
                self._remove(version)
        for operation in [operation for trace_id in traces for operation in self._operations[trace_id]]:
            self._remove(operation)
        for node in makers:
            if node in self.graph and self.graph.nodes[node].get("span", node) is None and not self.graph.degree(node):
                self._remove(node)
        for trace_id in traces:
            for part in self._parts.pop(trace_id, ()):
                del self.graph.graph["mains"][part]
            for outer in self._outer.pop(trace_id, ()):
                del self.graph.graph["repeats"][outer]

    def _put_in(self, part: Part, traces: set[str], refs: set[str]) -> None:
        """Add the same from a graph of all that has a say in it."""
        fresh = part.graph
        for node, attributes in fresh.nodes(data=True):
            mine = node.ref in refs if isinstance(node, VersionKey) else node.origin[:32] in traces
            if mine and (attributes.get("span", node) is not None):
                self._add(node, attributes)
        for source, target, key, edge in fresh.edges(keys=True, data=True):
            ends = (source, target)
            if any(n.ref in refs if isinstance(n, VersionKey) else n.origin[:32] in traces for n in ends):
                for node in ends:
                    if node not in self.graph:
                        self._add(node, fresh.nodes[node])
                self.graph.add_edge(source, target, key=key, **edge)
        self._tell(part, traces)

    def _tell(self, part: Part, traces: set[str] | None = None) -> None:
        """Take over which spans are parts and which versions repeat others, of these traces (None: of all)."""
        told, fresh = self.graph.graph, part.graph.graph
        for span, main in fresh["mains"].items():
            if traces is None or span[:32] in traces:
                told["mains"][span] = main
                self._parts[span[:32]].append(span)
        for outer, inner in fresh["repeats"].items():
            if traces is None or outer.origin[:32] in traces:
                told["repeats"][outer] = inner
                self._outer[outer.origin[:32]].append(outer)

    def _mend_lone(self, refs: set[str], traces: set[str]) -> None:
        """A variable that everybody names for himself shows what all of its readers saw."""
        operations = [operation for trace_id in traces for operation in self._operations[trace_id]]
        for version in [version for ref in refs for version in self._versions_of(ref)]:
            if not self._lone.mend(version, traces, operations, keyed=bool(self._keyed)):
                self._remove(version)

    def _versions_of(self, ref: str) -> list[VersionKey]:
        return list(self.graph.indexes.versions.get(ref, ()))

    # --- reasons -------------------------------------------------------------------------------------------------
    def _mend_reasons(self, part: Part, traces: set[str], refs: set[str], lone: set[str]) -> None:
        touched = {node.origin for trace_id in traces for node in self._operations[trace_id]}
        self._reasons.update((origin, why) for origin, why in part.reasons.items() if origin[:32] in traces)
        for ref in refs:
            before, told = self._gaps.pop(ref, set[tuple[str, str]]()), part.gaps.get(ref, set[tuple[str, str]]())
            after = set(told)
            if ref in lone:  # the traces around know of their own gaps only
                after = {gap for gap in before if gap[0][:32] not in traces} | {g for g in told if g[0][:32] in traces}
            if after:
                self._gaps[ref] = after
            for origin, reason in before - after:
                self._lineage[origin][reason] -= 1
            for origin, reason in after - before:
                self._lineage[origin][reason] += 1
            touched.update(origin for origin, _ in before ^ after)
        for origin in touched:
            node = self.graph.nodes.get(OperationKey(origin))
            if node is not None and node["span"] is not None:
                lineage = {reason for reason, count in self._lineage[origin].items() if count > 0}
                self._counts.subtract(node["incomplete"])
                node["incomplete"] = tuple(sorted(self._reasons[origin] | lineage))
                self._counts.update(node["incomplete"])
