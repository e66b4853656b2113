"""Graphs as plain comparable values."""

from __future__ import annotations

from typing import Any

from memtrace_otel.graph import EvolutionGraph


def picture(graph: EvolutionGraph) -> tuple[list[Any], list[Any], dict[str, int]]:
    """Nodes, edges and reasons with all attributes: equal exactly for equal graphs."""
    nodes = [(node, attributes) for node, attributes in graph.nodes(data=True)]
    edges = [(*edge[:3], edge[3]) for edge in graph.edges(keys=True, data=True)]
    return sorted(nodes, key=lambda n: tuple(n[0])), sorted(edges, key=lambda e: (e[0], e[1], e[2])), graph.incomplete
