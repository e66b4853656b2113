"""What holds for every stream of spans: in memory and from the file, at once and bit by bit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from hypothesis import given, settings

from memtrace_otel.graph import (
    EvolutionGraph,
    NodeKey,
    OperationKey,
    VersionKey,
    build_graph,
    load_around,
    load_scope,
    load_slice,
)
from memtrace_otel.graph.export import node_id
from memtrace_otel.model import OperationSpan
from memtrace_otel.otlp import encode_request
from memtrace_otel.report.memory import version_row
from memtrace_otel.semconv import Incomplete
from memtrace_otel.sources import SqliteStore
from tests.unit.graph.pictures import picture
from tests.unit.graph.streams import (
    SCOPES,
    named_streams,
    streams,
    wild_streams,
)

quick = settings(max_examples=20, deadline=None, derandomize=True)


@contextmanager
def stored(spans: list[OperationSpan]) -> Iterator[SqliteStore]:
    with TemporaryDirectory() as folder, SqliteStore.open(Path(folder) / "spans.db") as store:
        store.add_request(encode_request(spans))
        store.decode()
        yield store


@quick
@given(streams | wild_streams)
def test_a_slice_from_the_file_equals_the_slice_of_the_whole_graph(spans: list[OperationSpan]) -> None:
    with stored(spans) as store:
        whole = build_graph(store.spans(), whole=False)
        for operation in whole.operations():
            loaded = load_slice(store, operation.origin)
            part = whole.part(whole.slice_of_answer(operation.origin))
            assert told(loaded) == told(part)
            for graph in (loaded, part):
                assert bool(next(graph.missing(), "")) == (Incomplete.MISSING_OPERATION in graph.incomplete)


def told(graph: EvolutionGraph) -> tuple[object, object]:
    """Nodes and edges, without what readers outside say about them."""
    nodes, edges, _ = picture(graph)
    return [
        (node, {**attributes, **dict.fromkeys(_told_by_readers(node, attributes))}) for node, attributes in nodes
    ], edges


def _told_by_readers(node: NodeKey, attributes: dict[str, Any]) -> tuple[str, ...]:
    if isinstance(node, OperationKey):
        return ("incomplete",)
    if not node.origin or not attributes["variable"]:
        return "variable", "content", "truncated"
    return () if attributes["variable"].content and not attributes["truncated"] else ("content", "truncated")


@quick
@given(streams)
def test_a_memory_from_the_file_equals_the_memory_in_the_whole_graph(spans: list[OperationSpan]) -> None:
    """Whatever others do to what it has, by an origin or by the name that both have for it."""
    with stored(spans) as store:
        whole = build_graph(store.spans(), whole=False)
        for scope in filter(None, SCOPES):
            loaded = load_scope(store, scope)
            assert loaded.state(scope) == whole.state(scope)
            assert loaded.diff(scope, 0) == whole.diff(scope, 0)
            for operation in whole.operations(scope=scope):
                assert loaded.slice_of_answer(operation.origin) == whole.slice_of_answer(operation.origin)


@quick
@given(named_streams)
def test_the_graph_around_a_node_answers_like_the_whole_graph(spans: list[OperationSpan]) -> None:
    whole = build_graph(spans, whole=False)
    with stored(spans) as store:
        for node in whole:
            around = load_around(store, [node_id(node)])
            assert around.ancestors(node) == whole.ancestors(node)
            assert around.descendants(node) == whole.descendants(node)
            if isinstance(node, VersionKey):
                assert around.readers(node) == whole.readers(node)
        for ref in whole.refs():
            rows = [[version_row(g, v) for v in g.history(ref)] for g in (load_around(store, [ref]), whole)]
            around_it, of_all = [[row for row in found if row["by"] or row["operation"] == ""] for found in rows]
            assert around_it == of_all
