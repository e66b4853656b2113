"""What a graph is asked for by, besides its nodes; kept up to date as nodes come and go."""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from memtrace_otel.graph.assembly import time_order
from memtrace_otel.graph.keys import NodeKey, VersionKey
from memtrace_otel.model import OperationSpan


class Indexes:
    """Operations in time order, by trace and by parent; versions by ref."""

    def __init__(self, nodes: Iterable[tuple[NodeKey, Mapping[str, Any]]] = ()) -> None:
        self.spans: list[OperationSpan] = []
        self.traces: defaultdict[str, list[OperationSpan]] = defaultdict(list)
        self.children: defaultdict[str, list[OperationSpan]] = defaultdict(list)
        self.versions: defaultdict[str, dict[VersionKey, None]] = defaultdict(dict)
        operations: list[tuple[OperationSpan, str]] = []
        for node, attributes in nodes:
            if isinstance(node, VersionKey):
                self.versions[node.ref][node] = None
            elif attributes["span"] is not None:
                operations.append((attributes["span"], attributes["parent"]))
        for span, parent in sorted(operations, key=lambda operation: time_order(operation[0])):
            for spans in (self.spans, self.traces[span.trace_id], self.children[parent]):
                spans.append(span)

    def add(self, node: NodeKey, attributes: Mapping[str, Any]) -> None:
        """Take in a node that is new to the graph."""
        if isinstance(node, VersionKey):
            self.versions[node.ref][node] = None
        elif (span := attributes["span"]) is not None:
            for spans in (self.spans, self.traces[span.trace_id], self.children[attributes["parent"]]):
                insort(spans, span, key=time_order)

    def remove(self, node: NodeKey, attributes: Mapping[str, Any]) -> None:
        """Let go of a node that leaves the graph."""
        if isinstance(node, VersionKey):
            _drop(self.versions, node.ref, node)
        elif (span := attributes["span"]) is not None:
            del self.spans[bisect_left(self.spans, time_order(span), key=time_order)]
            for index, key in ((self.traces, span.trace_id), (self.children, attributes["parent"])):
                del index[key][bisect_left(index[key], time_order(span), key=time_order)]
                if not index[key]:
                    del index[key]


def _drop(index: defaultdict[str, dict[VersionKey, None]], key: str, node: VersionKey) -> None:
    index[key].pop(node, None)
    if not index[key]:
        del index[key]
