"""Load the graph around a trace, a scope or a node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from memtrace_otel.graph import (
    OperationKey,
    VersionKey,
    build_graph,
    load_around,
    load_graph,
    load_graphs,
    load_scope,
)
from memtrace_otel.model import OperationSpan
from memtrace_otel.otlp import encode_request
from memtrace_otel.semconv import Action, OpKind, Role
from memtrace_otel.sources import SqliteStore
from tests.unit.graph.conftest import ALICE, BOB, origin_of, put, seen, span
from tests.unit.graph.pictures import picture

TRACE = "{:032x}".format


class Listed:
    """A source over a list that counts how often each trace is asked for."""

    def __init__(self, spans: list[OperationSpan]) -> None:
        self._spans = spans
        self.asked: Counter[str] = Counter()
        self.incomplete: list[str] = []

    def trace(self, trace_id: str) -> list[OperationSpan]:
        self.asked[trace_id] += 1
        return [s for s in self._spans if s.trace_id == trace_id]

    def spans(
        self,
        *,
        scope: str | None = None,
        kinds: Collection[str] = (),
        since: int | None = None,
        until: int | None = None,
    ) -> Iterator[OperationSpan]:
        return (s for s in self._spans if scope in (None, s.scope))

    def readers(self, origin: str, *, kinds: Collection[str] = ()) -> list[OperationSpan]:
        found = [s for s in self._spans if not kinds or s.kind in kinds]
        return [s for s in found if any(v.origin == origin for v in s.inputs)]

    def writers(self, ref: str) -> list[str]:
        return []

    def changed_elsewhere(self, spans: Collection[OperationSpan]) -> set[str]:
        return set()

    def trace_ids(self, *, scope: str | None = None) -> list[str]:
        return list(dict.fromkeys(s.trace_id for s in self._spans if scope in (None, s.scope)))


def strangers() -> list[OperationSpan]:
    """Another owner's life, and a trace of his that also serves a third owner."""
    return [
        span(50, 1, OpKind.CREATE, at=0, scope=BOB, outputs=[put("memory:bob", "bob", action=Action.ADD)]),
        span(51, 1, OpKind.RETRIEVE, at=9, scope=BOB, inputs=[seen("memory:bob", origin_of(50, 1), role=Role.HIT)]),
    ]


def test_only_the_scope_of_the_trace_is_loaded(story: list[OperationSpan]) -> None:
    graph = load_graph(Listed([*story, *strangers()]), TRACE(4))
    assert picture(graph) == picture(build_graph(story, whole=False))


def test_every_trace_is_read_once(story: list[OperationSpan]) -> None:
    source = Listed([*story, *strangers()])
    load_graph(source, TRACE(4))
    assert set(source.asked.values()) == {1}


def test_origins_lead_to_other_traces_and_their_scopes(story: list[OperationSpan]) -> None:
    asked = span(9, 1, OpKind.RESPOND, at=300, inputs=[seen("memory:tea", origin_of(3, 3), role=Role.CONTEXT)])
    graph = load_graph(Listed([*story, asked]), TRACE(9))
    assert VersionKey("memory:home", origin_of(2, 3)) in graph  # same scope as the tea
    assert OperationKey(origin_of(3, 2)) in graph.slice_of_answer(asked.origin)


def test_a_trace_with_two_scopes_does_not_load_the_other_scope(story: list[OperationSpan]) -> None:
    shared = [
        span(8, 1, OpKind.RETRIEVE, at=1, scope=ALICE, inputs=[seen("memory:tea")]),
        span(8, 2, OpKind.RETRIEVE, at=2, scope=BOB, inputs=[seen("memory:bob", origin_of(50, 1))]),
    ]
    graph = load_graph(Listed([*story, *shared, *strangers()]), TRACE(4))
    assert graph.operation(origin_of(8, 2)) is not None  # the whole trace, with its origins
    assert graph.operation(origin_of(50, 1)) is not None
    assert OperationKey(origin_of(51, 1)) not in graph


def test_a_unique_id_leads_to_its_writer_in_another_memory(tmp_path: Path) -> None:
    ref = "memory:0a0b0c0d-0000-4000-8000-000000000001"
    write = span(1, 1, OpKind.CREATE, at=1, scope=BOB, outputs=[put(ref, "tea", action=Action.ADD)])
    search = span(
        2, 1, OpKind.RETRIEVE, at=2, scope=ALICE, inputs=[seen(ref)], outputs=[put(f"context:{1:016x}", "tea")]
    )
    context = seen(f"context:{1:016x}", search.origin, role=Role.CONTEXT)
    answer = span(2, 2, OpKind.RESPOND, at=3, scope=ALICE, inputs=[context], outputs=[put(f"answer:{2:016x}", "tea")])
    with SqliteStore.open(tmp_path / "a.db") as store:
        store.add_request(encode_request([write, search, answer]))
        expected = build_graph([write, search, answer]).slice_of_answer(answer.origin)
        assert OperationKey(write.origin) in expected
        assert load_scope(store, ALICE).slice_of_answer(answer.origin) == expected
        assert load_graph(store, TRACE(2)).slice_of_answer(answer.origin) == expected


@pytest.mark.parametrize("who", [BOB, ""])
@pytest.mark.parametrize("ref", ["memory:1", "memory:0a0b0c0d-0000-4000-8000-000000000001"])
def test_a_record_deleted_by_another_scope_is_not_held(tmp_path: Path, who: str, ref: str) -> None:
    """A universally unique id identifies the record. Another id needs the origin."""
    write = span(1, 1, OpKind.CREATE, at=1, scope=ALICE, outputs=[put(ref, "tea", action=Action.ADD)])
    named = [] if len(ref) > 20 else [seen(ref, write.origin, role=Role.PREVIOUS)]
    delete = span(2, 1, OpKind.DELETE, at=2, scope=who, inputs=named, outputs=[seen(ref, action=Action.DELETE)])
    asked = span(3, 1, OpKind.RESPOND, at=3, scope=ALICE, outputs=[put(f"answer:{1:016x}", "?")])
    with SqliteStore.open(tmp_path / "a.db") as store:
        store.add_request(encode_request([write, delete, asked]))
        for graph in (build_graph(store.spans()), load_scope(store, ALICE), load_graph(store, TRACE(3))):
            assert graph.state(ALICE) == []
            assert [version.origin for version in graph.history(ref)] == [write.origin, delete.origin]


def test_gaps_are_lost_spans_only_in_the_graph_of_the_whole_source(tmp_path: Path) -> None:
    spans = [span(n, 1, OpKind.CREATE, at=n, seq=n, outputs=[put(f"memory:{n}", action=Action.ADD)]) for n in (1, 2, 4)]
    with SqliteStore.open(tmp_path / "a.db") as store:
        store.add_request(encode_request(spans))
        assert load_scope(store).incomplete == build_graph(spans).incomplete == {"lost_spans": 1}
        assert load_scope(store, max_spans=2).incomplete == {"bounded": 1}
        assert load_scope(store, ALICE).incomplete == {}


def test_a_judgement_in_another_trace_is_found(story: list[OperationSpan]) -> None:
    judge = span(60, 1, OpKind.JUDGE, at=500, inputs=[seen(f"answer:{1:016x}", origin_of(4, 1), role=Role.ANSWER)])
    assert OperationKey(judge.origin) in load_graph(Listed([*story, judge]), TRACE(4))


def test_an_unknown_trace_is_an_empty_graph(story: list[OperationSpan]) -> None:
    assert len(load_graph(Listed(story), TRACE(77))) == 0


def test_the_bound_of_spans_is_kept_and_reported(story: list[OperationSpan]) -> None:
    source = Listed(story)
    graph = load_graph(source, TRACE(4), max_spans=4)
    assert graph.incomplete["bounded"] == 1
    assert sum(source.asked.values()) < 5


class Limited(Listed):
    """A source that gives up after some traces."""

    def trace(self, trace_id: str) -> list[OperationSpan]:
        if len(self.asked) == 2:
            self.incomplete.append("the bound of this session is reached")
            return []
        return super().trace(trace_id)


def test_a_source_past_its_bounds_gives_a_bounded_graph(story: list[OperationSpan]) -> None:
    source = Limited(story)
    graph = load_graph(source, TRACE(4))
    assert graph.incomplete["bounded"] == 1
    assert graph.operation(origin_of(4, 1)) is not None
    assert len(source.asked) == 2


class Damaged(Listed):
    """A source that cannot read the second trace."""

    def trace(self, trace_id: str) -> list[OperationSpan]:
        spans = super().trace(trace_id)
        if trace_id == TRACE(2):
            self.incomplete.append(f"trace {trace_id} cannot be read")
            return []
        return spans


def test_only_a_trace_that_cannot_be_read_is_missing(story: list[OperationSpan]) -> None:
    source = Damaged(story)
    graph = load_graph(source, TRACE(4))
    assert graph.incomplete["bounded"] == 1
    without = load_graph(Listed([span for span in story if span.trace_id != TRACE(2)]), TRACE(4))
    assert list(graph.operations()) == list(without.operations())
    assert set(source.asked.values()) == {1}


def test_circular_origins_end() -> None:
    ring = [
        span(n, 1, OpKind.UPDATE, at=n, scope=f"{n}", inputs=[seen("memory:r", origin_of(n % 5 + 1, 1))])
        for n in range(1, 6)
    ]
    assert len(load_graph(Listed(ring), TRACE(1)).operations()) == 5


def test_around_a_node_no_other_memory_is_read(story: list[OperationSpan], tmp_path: Path) -> None:
    with SqliteStore.open(tmp_path / "spans.db") as store:
        store.add_request(encode_request([*story, *strangers()]))
        asked: list[str | None] = []
        trace_ids = store.trace_ids

        def counted(*, scope: str | None = None) -> list[str]:
            asked.append(scope)
            return trace_ids(scope=scope)

        store.trace_ids = counted  # type: ignore[method-assign]
        graph = load_around(store, ["memory:home"])
        assert asked == [ALICE]
        assert [v.origin for v in graph.history("memory:home")] == [origin_of(1, 3), origin_of(2, 3)]
        assert OperationKey(origin_of(50, 1)) not in graph
        assert len(load_around(store, ["memory:nobody"])) == 0
        assert asked == [ALICE]


def test_traces_of_the_same_memories_are_in_one_graph(story: list[OperationSpan]) -> None:
    alone = span(70, 1, OpKind.RESPOND, at=9, inputs=[seen("memory:bob", origin_of(50, 1), role=Role.CONTEXT)])
    without = [span(trace, 1, OpKind.RESPOND, at=9, inputs=[seen("query:q")]) for trace in (71, 72)]
    source = Listed([*story, *strangers(), alone, *without])
    graphs = list(load_graphs(source, [TRACE(n) for n in (4, 70, 71, 51, 2, 77, 4, 72)]))
    together = [[int(trace_id, 16) for trace_id in traces] for traces, _ in graphs]
    assert together == [[4, 2], [70, 51], [71], [77], [72]]  # a trace without a scope has a graph of its own
    for traces, graph in graphs:
        assert all(load_graph(source, trace_id).nodes <= graph.nodes for trace_id in traces)
        assert len(graph) == len(set().union(*(load_graph(source, trace_id) for trace_id in traces)))


def test_a_memory_that_only_reads_a_record_is_found_by_its_scope(story: list[OperationSpan], tmp_path: Path) -> None:
    reading = span(80, 1, OpKind.RETRIEVE, at=9, scope="c" * 16, inputs=[seen("memory:home", role=Role.HIT)])
    with SqliteStore.open(tmp_path / "spans.db") as store:
        store.add_request(encode_request([*story, reading]))
        graph = load_around(store, [f"memory:home|~{reading.scope}"])
        assert OperationKey(reading.origin) in graph
        assert OperationKey(reading.origin) not in load_around(store, ["memory:home"])
