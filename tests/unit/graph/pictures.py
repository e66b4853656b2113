"""Graphs as comparable values, and spans in a file."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from memtrace_otel.graph import EvolutionGraph
from memtrace_otel.model import OperationSpan
from memtrace_otel.otlp import encode_request
from memtrace_otel.sources import SqliteStore


@contextmanager
def stored(spans: list[OperationSpan]) -> Iterator[SqliteStore]:
    """A new database with the spans."""
    with TemporaryDirectory() as folder, SqliteStore.open(Path(folder) / "spans.db") as store:
        store.add_request(encode_request(spans))
        yield store


def picture(graph: EvolutionGraph) -> tuple[list[Any], list[Any], dict[str, int]]:
    """Nodes, edges and reasons with all attributes: equal exactly for equal graphs."""
    nodes = [(node, attributes) for node, attributes in graph.nodes(data=True)]
    edges = [(*edge[:3], edge[3]) for edge in graph.edges(keys=True, data=True)]
    return sorted(nodes, key=lambda n: tuple(n[0])), sorted(edges, key=lambda e: (e[0], e[1], e[2])), graph.incomplete
