"""The slice of an answer straight from a file: a query finds the traces, the graph of these traces has the slice."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from memtrace_otel.graph.build import build_graph
from memtrace_otel.graph.keys import RECORD_KINDS, NodeKey, VersionKey
from memtrace_otel.graph.queries import EvolutionGraph
from memtrace_otel.model import ref_kind
from memtrace_otel.sources.protocols import TraceSource


class SliceSource(TraceSource, Protocol):
    """A source that finds the operations behind others."""

    def lineage(self, origins: Iterable[str]) -> list[str]:
        """Return the origins of the operations that some operations came from."""
        ...


def slice_of_answer(source: SliceSource, origin: str) -> set[NodeKey]:
    """Return the nodes of the slice of an answer, as `EvolutionGraph.slice_of_answer` does. Raises StoreError."""
    return _load(source, origin).slice_of_answer(origin)


def load_slice(source: SliceSource, origin: str) -> EvolutionGraph:
    """Build the graph of the slice of an answer, an empty one when the operation is unknown. Raises StoreError."""
    graph = _load(source, origin)
    return graph.part(graph.slice_of_answer(origin))


def _load(source: SliceSource, origin: str) -> EvolutionGraph:
    """Build the graph of the traces behind an answer. Where a record in the slice has no known writer, other memories
    may know the record by the same name: then all memories behind the trace are loaded."""
    traces = dict.fromkeys(found[:32] for found in source.lineage([origin]))
    graph = build_graph((span for trace_id in traces for span in source.trace(trace_id)), whole=False)
    if any(_has_no_writer(node) for node in graph.slice_of_answer(origin)):
        from memtrace_otel.graph.load import load_graph

        return load_graph(source, origin[:32])
    return graph


def _has_no_writer(node: NodeKey) -> bool:
    return isinstance(node, VersionKey) and not node.origin and ref_kind(node.ref) in RECORD_KINDS
