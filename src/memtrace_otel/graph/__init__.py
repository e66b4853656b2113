"""The evolution graph of operation spans: operations, versions of variables, reads and writes."""

from memtrace_otel.graph.build import build_graph
from memtrace_otel.graph.keys import EdgeType, NodeKey, NodeType, OperationKey, Read, VersionKey
from memtrace_otel.graph.load import (
    SliceSource,
    load_around,
    load_everywhere,
    load_graph,
    load_graphs,
    load_scope,
    load_slice,
)
from memtrace_otel.graph.memory_state import Change, ChangeKind
from memtrace_otel.graph.paths import Paths
from memtrace_otel.graph.queries import EvolutionGraph

__all__ = [
    "Change",
    "ChangeKind",
    "EdgeType",
    "EvolutionGraph",
    "NodeKey",
    "NodeType",
    "OperationKey",
    "Paths",
    "Read",
    "SliceSource",
    "VersionKey",
    "build_graph",
    "load_around",
    "load_everywhere",
    "load_graph",
    "load_graphs",
    "load_scope",
    "load_slice",
]
