"""What holds for every stream of spans: in memory and from the file, at once and bit by bit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from memtrace_otel.graph import (
    EvolutionGraph,
    NodeKey,
    OperationKey,
    VersionKey,
    build_graph,
    load_around,
    load_scope,
    load_slice,
    slice_of_answer,
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
    looking_streams,
    named_streams,
    shared_streams,
    streams,
    wild_streams,
    woven_streams,
)

quick = settings(max_examples=40, deadline=None, derandomize=True)
thorough = settings(quick, max_examples=150)
owners_meet = pytest.mark.parametrize(
    "drawn",
    [wild_streams, woven_streams, looking_streams, shared_streams],
    ids=["in the store", "in a trace", "looking", "sharing"],
)


@contextmanager
def stored(spans: list[OperationSpan]) -> Iterator[SqliteStore]:
    with TemporaryDirectory() as folder, SqliteStore.open(Path(folder) / "spans.db") as store:
        store.add_request(encode_request(spans))
        store.decode()
        yield store


@quick
@given(wild_streams | woven_streams | looking_streams, st.data())
def test_order_and_repetition_change_nothing(spans: list[OperationSpan], data: st.DataObject) -> None:
    again = data.draw(st.permutations([*spans, *data.draw(st.lists(st.sampled_from(spans), max_size=5))]))
    whole, shuffled = build_graph(spans), build_graph(again)
    assert picture(shuffled) == picture(whole)
    assert list(shuffled) == list(whole)


@quick
@given(streams, st.data())
def test_a_subset_is_the_same_graph_or_says_that_it_is_not(spans: list[OperationSpan], data: st.DataObject) -> None:
    """What the first and the last span of a process enclose: what is lost at either end, nobody can tell."""
    kept = [s for s in spans if s in (spans[0], spans[-1]) or data.draw(st.booleans())]
    part, whole = build_graph(kept), build_graph(spans)
    if len(kept) == len(spans):
        assert picture(part) == picture(whole)
    else:
        assert part.incomplete["lost_spans"] == len(spans) - len(kept)
    for node in part:
        if isinstance(node, OperationKey):
            there = part.nodes[node]["span"] is not None
            assert node in whole if there else part.nodes[node]["incomplete"]
        else:
            assert not node.origin or part.producer(node) in part


@owners_meet
@thorough
@given(st.data())
def test_a_slice_from_the_file_is_that_of_the_graph(
    drawn: st.SearchStrategy[list[OperationSpan]], data: st.DataObject
) -> None:
    spans = data.draw(drawn)
    with stored(spans) as store:
        whole = build_graph(store.spans(), whole=False)
        for operation in whole.operations():
            assert slice_of_answer(store, operation.origin) == whole.slice_of_answer(operation.origin)


@owners_meet
@thorough
@given(st.data())
def test_a_loaded_slice_is_that_part_of_the_graph(
    drawn: st.SearchStrategy[list[OperationSpan]], data: st.DataObject
) -> None:
    spans = data.draw(drawn)
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
def test_a_slice_of_the_whole_is_the_slice_of_its_scope(spans: list[OperationSpan]) -> None:
    """What another owner does in traces of his own changes nothing."""
    whole = build_graph(spans)
    traces: dict[str, set[str]] = {}
    for operation in whole.operations():
        traces.setdefault(operation.trace_id, set()).add(whole.scope_of(operation.origin))
    for scope in SCOPES[:2]:
        own = build_graph([s for s in spans if traces[s.trace_id] <= {scope, ""}])
        for operation in own.operations():
            if traces[operation.trace_id] == {scope}:
                assert shown(own, operation.origin) == shown(whole, operation.origin)


@thorough
@given(shared_streams)
def test_a_memory_from_the_file_is_that_of_the_whole(spans: list[OperationSpan]) -> None:
    """Whatever others do to what it has, by an origin or by the name that both have for it."""
    with stored(spans) as store:
        whole = build_graph(store.spans(), whole=False)
        for scope in filter(None, SCOPES):
            loaded = load_scope(store, scope)
            assert loaded.state(scope) == whole.state(scope)
            assert loaded.diff(scope, 0) == whole.diff(scope, 0)
            for operation in whole.operations(scope=scope):
                assert loaded.slice_of_answer(operation.origin) == whole.slice_of_answer(operation.origin)


def shown(graph: EvolutionGraph, origin: str) -> set[object]:
    return {
        node for node in graph.slice_of_answer(origin) if not isinstance(node, VersionKey) or "0a0b" not in node.ref
    }


@quick
@given(named_streams)
def test_what_is_loaded_around_a_node_answers_like_the_whole(spans: list[OperationSpan]) -> None:
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
