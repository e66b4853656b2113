"""Operation spans become an evolution graph: which operation read and wrote which version of what."""

from memtrace_otel.graph.build import build_graph
from memtrace_otel.graph.evolution import EvolutionGraph
from memtrace_otel.graph.keys import EdgeType, NodeKey, NodeType, OperationKey, Read, VersionKey
from memtrace_otel.graph.load import load_graph

__all__ = [
    "EdgeType",
    "EvolutionGraph",
    "NodeKey",
    "NodeType",
    "OperationKey",
    "Read",
    "VersionKey",
    "build_graph",
    "load_graph",
]
