"""Properties of graphs for every order, repetition and subset of the spans, and for random spans."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import networkx as nx
import pytest

from memtrace_otel.graph import (
    EdgeType,
    EvolutionGraph,
    OperationKey,
    VersionKey,
    build_graph,
    load_around,
    load_scope,
    load_slice,
)
from memtrace_otel.graph.assembly import assemble
from memtrace_otel.graph.export import node_id
from memtrace_otel.graph.hierarchy import Hierarchy
from memtrace_otel.model import OperationSpan, Variable
from memtrace_otel.otlp import encode_request
from memtrace_otel.semconv import Action, OpKind, Role
from memtrace_otel.sources import SqliteStore
from tests.unit.graph.conftest import life_of_a_fact, origin_of, put, span
from tests.unit.graph.pictures import picture


def parted_story() -> list[OperationSpan]:
    """The story with one operation spread over parts, a repeated output, a search without origins and a deletion."""
    spans = life_of_a_fact()
    scope = spans[0].scope
    return [
        *spans,
        span(6, 1, OpKind.INGEST, at=60, lasts=9, scope=scope, outputs=[put("memory:tea", action=Action.DELETE)]),
        span(6, 2, OpKind.DELETE, parent=1, at=61, outputs=[put("memory:tea", action=Action.DELETE)]),
        span(7, 1, OpKind.CONSOLIDATE, at=70, scope=scope, inputs=[put("message:m9", "nine")]),
        span(7, 2, OpKind.CONSOLIDATE, parent=1, part=1, at=71, inputs=[Variable("memory:home")]),
        span(
            7,
            3,
            OpKind.CONSOLIDATE,
            parent=1,
            part=2,
            at=71,
            outputs=[put("memory:nine", "9", action=Action.ADD)],
            flow=((0, 0),),
        ),
        span(8, 1, OpKind.RETRIEVE, at=80, scope=scope, inputs=[Variable("memory:tea"), Variable("memory:nine")]),
    ]


@pytest.mark.parametrize("seed", range(20))
def test_order_and_repetition_change_nothing(seed: int) -> None:
    rng = random.Random(seed)
    spans = parted_story()
    whole = build_graph(spans)
    again = spans + rng.choices(spans, k=rng.randrange(1, 30))
    rng.shuffle(again)
    assert picture(build_graph(again)) == picture(whole)
    assert list(build_graph(again)) == list(whole)


@pytest.mark.parametrize("seed", range(20))
def test_two_contents_under_one_id_are_reported_as_conflict(seed: int) -> None:
    spans = parted_story()
    other = replace(spans[2], outputs=(put("memory:home", "Lives in Rome", action=Action.ADD),), status="error")
    graphs = []
    for order in range(2):
        mixed = [*spans, other]
        random.Random(seed * 2 + order).shuffle(mixed)
        graphs.append(build_graph(mixed))
    assert picture(graphs[0]) == picture(graphs[1])
    assert graphs[0].incomplete == {"conflict": 1}


@pytest.mark.parametrize("seed", range(40))
def test_a_subset_of_the_spans_reports_the_missing_spans(seed: int) -> None:
    rng = random.Random(seed)
    numbered = [replace(s, seq=n, resource={"service.name": "s"}) for n, s in enumerate(parted_story(), 1)]
    kept = [s for s in numbered if rng.random() < rng.choice((0.3, 0.6, 0.9))]
    graph = build_graph(kept)
    inner_gap = bool(kept) and kept[-1].seq - kept[0].seq + 1 > len(kept)  # type: ignore[operator]
    assert ("lost_spans" in graph.incomplete) == inner_gap
    known = {s.origin for s in kept}
    for node in graph:
        if isinstance(node, OperationKey):
            span_ = graph.operation(node.origin)
            assert span_ is not None or graph.nodes[node]["incomplete"]
            assert node.origin in known or graph.nodes[node]["incomplete"]
            graph.inputs(node.origin), graph.outputs(node.origin), graph.slice_of_answer(node.origin)
        else:
            assert not node.origin or graph.producer(node) in graph
            assert node in graph.history(node.ref)
            graph.ancestors(node), graph.descendants(node), graph.readers(node)


def noise(rng: random.Random) -> list[OperationSpan]:
    """Wild parents, parts, origins, flows and times: circles of every sort, and ids with several contents."""
    refs = ["memory:a", "memory:b", "message:m", "fact:f", "context:c", "answer:a", "query:q", "strange", "state:s"]

    def variable() -> Variable:
        origin = rng.choice(["", "", "bad", origin_of(rng.randrange(1, 4), rng.randrange(1, 8))])
        return Variable(
            rng.choice(refs),
            role=rng.choice(list(Role)),
            origin=origin,
            digest=rng.choice(["", "d" * 16, "e" * 16]),
            content=rng.choice(["", "x", "\ud800"]),
            action=rng.choice([*Action, ""]),
            size=rng.choice([None, 0, 1, 99]),
        )

    return [
        span(
            rng.randrange(1, 4),
            rng.randrange(1, 8),
            rng.choice([*OpKind, ""]),
            parent=rng.randrange(8),
            at=rng.randrange(6),
            lasts=rng.randrange(-1, 4),
            part=rng.choice([0, 0, 0, 1, 2, 5]),
            scope=rng.choice(["", "", "s1", "s2"]),
            seq=rng.choice([None, rng.randrange(30)]),
            inputs=[variable() for _ in range(rng.randrange(4))],
            outputs=[variable() for _ in range(rng.randrange(4))],
            flow=tuple((rng.randrange(-1, 5), rng.randrange(5)) for _ in range(rng.randrange(3))),
            attributes=rng.choice([{}, {"gen_ai.evaluation.score.value": 0.0}]),
        )
        for _ in range(30)
    ]


def of_owner(number: int) -> list[OperationSpan]:
    """The story of another owner, in traces of its own, with the same ids."""
    scope = f"{number:016x}"

    def moved(origin: str) -> str:
        return f"{number:08x}{origin[8:]}" if origin else ""

    return [
        replace(
            s,
            trace_id=moved(s.trace_id),
            scope=scope if s.scope else "",
            inputs=tuple(replace(v, origin=moved(v.origin)) for v in s.inputs),
        )
        for s in parted_story()
    ]


@pytest.mark.parametrize("seed", range(10))
def test_a_slice_of_the_whole_graph_equals_the_slice_of_its_scope(seed: int) -> None:
    """Owners share ids and questions, not memories."""
    rng = random.Random(seed)
    owners = [of_owner(number) for number in range(1, 5)]
    spans = [s for owner in owners for s in owner]
    rng.shuffle(spans)
    whole = build_graph(spans)
    for number, owner in enumerate(owners, 1):
        alone = build_graph(owner)
        for span_ in alone.operations():
            assert whole.slice_of_answer(span_.origin) == alone.slice_of_answer(span_.origin)
        for message in alone.messages():
            assert whole.slice_of_message(message) == alone.slice_of_message(message)
        scope = f"{number:016x}"
        assert whole.state(scope) == alone.state(scope) != []
        assert whole.diff(scope, 0) == alone.diff(scope, 0)


@pytest.mark.parametrize("seed", range(30))
def test_every_query_ends_on_random_spans(seed: int) -> None:
    """Wild parents, parts, origins, flows and times: circles of every sort, and no exception or endless walk."""
    rng = random.Random(seed)
    spans = noise(rng)
    graph = build_graph(spans)
    shuffled = spans[:]
    rng.shuffle(shuffled)
    assert picture(build_graph(shuffled)) == picture(graph)
    supersedes = [(a, b) for a, b, edge in graph.edges(data=True) if edge["type"] == EdgeType.SUPERSEDES]
    for node in graph:
        graph.ancestors(node), graph.descendants(node), graph.slice_of_answer(node.origin)
        if isinstance(node, VersionKey):
            history = graph.history(node.ref)
            assert sorted(set(history)) == sorted(history)
            assert node in history
        backwards, forwards = graph.ancestors(node), graph.descendants(node)
        assert all(node in graph.descendants(other) for other in backwards if isinstance(other, VersionKey))
        assert all(node in graph.ancestors(other) for other in forwards if isinstance(other, VersionKey))
    for component in nx.strongly_connected_components(nx.DiGraph(supersedes)):
        # Named replacements may form a circle. An inferred replacement never closes a circle.
        inside = [(a, b, e) for a, b, e in graph.edges(component, data=True) if b in component and len(component) > 1]
        assert all(not e["inferred"] for _, _, e in inside if e["type"] == EdgeType.SUPERSEDES)


@pytest.mark.parametrize("seed", range(60))
def test_the_hierarchy_answers_like_a_walk_from_parent_to_parent(seed: int) -> None:
    rng = random.Random(seed)
    spans = noise(rng) if seed % 2 else nested(rng)
    assembly = assemble(spans)
    hierarchy = assembly.hierarchy
    origins = [*{span.origin for span in spans}, *hierarchy.mains.values(), origin_of(9, 9)]
    nearest = hierarchy.nearest(assembly.operations)
    for origin in origins:
        around = list(hierarchy.enclosing(origin))
        assert origin not in around
        assert [outer for outer in origins if hierarchy.encloses(outer, origin)] == [o for o in origins if o in around]
        assert nearest.get(origin, "") == next((outer for outer in around if outer in assembly.operations), "")


def nested(rng: random.Random) -> list[OperationSpan]:
    """Nested operations without an end, most of them inside the operation before; a few parents begin later."""
    spans: list[OperationSpan] = []
    for number in range(1, 31):
        parent = number - 1 if rng.random() < 0.8 else rng.randrange(number)
        at = number if rng.random() < 0.8 else rng.randrange(30)
        kind = rng.choice([OpKind.UPDATE, OpKind.UPDATE, ""])
        ref = [put(rng.choice(["state:s", "fact:f"]), rng.choice(["x", "y", ""]))] if kind else []
        spans.append(span(1, number, kind, parent=parent, at=at, lasts=99, inputs=ref, outputs=ref))
    return spans


def test_the_cost_of_nested_operations_is_not_quadratic(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = 0
    encloses = Hierarchy.encloses

    def counting(hierarchy: Hierarchy, outer: str, origin: str) -> bool:
        nonlocal steps
        steps += 1
        return encloses(hierarchy, outer, origin)

    monkeypatch.setattr(Hierarchy, "encloses", counting)
    for ref in ("state:s", "fact:f"):
        taken: list[int] = []
        for depth in (100, 400):
            steps = 0
            build_graph(
                span(1, number, OpKind.UPDATE, parent=number - 1, at=number, lasts=2 * (depth - number) + 1, scope="s",
                     inputs=[Variable(ref, Role.PREVIOUS)], outputs=[put(ref, f"v{number}", action=Action.UPDATE)])
                for number in range(1, depth + 1)
            )  # fmt: skip
            taken.append(steps)
        assert taken[1] < 6 * taken[0]


def test_queries_work_through_3000_nested_operations() -> None:
    """The output of a step without inputs descends from the operation around the step, at any depth."""
    depth = 3000
    read = [put("message:m", "hi", role=Role.MESSAGE)]
    steps = (
        span(1, number, OpKind.UPDATE, parent=number - 1, at=number, lasts=9999, scope="s",
             outputs=[put(f"memory:{number}", "x", action=Action.ADD)])
        for number in range(2, depth)
    )  # fmt: skip
    graph = build_graph([span(1, 1, OpKind.INGEST, at=1, lasts=9999, scope="s", inputs=read), *steps])
    last = VersionKey(f"memory:{depth - 1}", origin_of(1, depth - 1))
    message = VersionKey("message:m", "", "s")
    assert last in graph.descendants(message)
    assert last in graph.slice_of_message(message)
    assert message in graph.ancestors(last)


@pytest.fixture(scope="module")
def two_owners() -> Iterator[tuple[SqliteStore, EvolutionGraph]]:
    """Two owners with equal ids in one file, and the graph of the whole file."""
    with TemporaryDirectory() as folder, SqliteStore.open(Path(folder) / "memtrace.db") as store:
        store.add_request(encode_request([*parted_story(), *of_owner(1)]))
        yield store, build_graph(store.spans(), whole=False)


def test_a_slice_from_the_file_equals_the_slice_of_the_whole_graph(
    two_owners: tuple[SqliteStore, EvolutionGraph],
) -> None:
    store, whole = two_owners
    for operation in whole.operations():
        expected = whole.slice_of_answer(operation.origin)
        assert set(load_slice(store, operation.origin)) == expected


def test_a_memory_from_the_file_equals_the_memory_in_the_whole_graph(
    two_owners: tuple[SqliteStore, EvolutionGraph],
) -> None:
    store, whole = two_owners
    for scope in whole.scopes():
        loaded = load_scope(store, scope)
        assert loaded.state(scope) == whole.state(scope)
        assert loaded.diff(scope, 0) == whole.diff(scope, 0)


def test_the_graph_around_a_node_answers_like_the_whole_graph(two_owners: tuple[SqliteStore, EvolutionGraph]) -> None:
    store, whole = two_owners
    for node in whole:
        if node.origin:
            around = load_around(store, [node_id(node)])
            assert around.ancestors(node) == whole.ancestors(node)
            assert around.descendants(node) == whole.descendants(node)
