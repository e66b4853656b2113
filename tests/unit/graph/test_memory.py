"""The state of a memory, its changes, the slice of a message, and paths."""

from __future__ import annotations

import random

import pytest

from memtrace_otel.graph import ChangeKind, EvolutionGraph, OperationKey, VersionKey, build_graph
from memtrace_otel.model import OperationSpan
from memtrace_otel.semconv import Action, OpKind, Role
from tests.unit.graph.conftest import ALICE, BOB, origin_of, put, seen, span

SECOND = 1_000_000_000
PARIS, LISBON = (VersionKey("memory:home", origin_of(trace, 3)) for trace in (1, 2))
TEA = VersionKey("memory:tea", origin_of(3, 3))


def forgotten(story: list[OperationSpan]) -> EvolutionGraph:
    """The story, after which the tea is deleted."""
    delete = span(
        6, 1, OpKind.DELETE, at=60, scope=ALICE, inputs=[seen("memory:tea", TEA.origin, role=Role.PREVIOUS)],
        outputs=[put("memory:tea", action=Action.DELETE)],
    )  # fmt: skip
    return build_graph([*story, delete])


# --- state ------------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    ("second", "held"),
    [(3, []), (4, [PARIS]), (23, [PARIS]), (24, [LISBON]), (50, [LISBON, TEA]), (61, [LISBON]), (None, [LISBON])],
)
def test_a_memory_holds_records_that_were_written_and_not_deleted(
    story: list[OperationSpan], second: int | None, held: list[VersionKey]
) -> None:
    time = None if second is None else second * SECOND
    assert forgotten(story).state(ALICE, time) == held


def test_another_owner_of_an_equal_id_is_another_record(story: list[OperationSpan]) -> None:
    other = span(9, 1, OpKind.CREATE, at=5, scope=BOB, outputs=[put("memory:home", "Bob's", action=Action.ADD)])
    graph = build_graph([*story, other])
    assert graph.state(BOB) == [VersionKey("memory:home", other.origin)]
    assert VersionKey("memory:home", other.origin) not in graph.state(ALICE)
    assert graph.scopes() == [ALICE, BOB]


def test_a_record_of_an_unknown_writer_is_held_from_its_first_read() -> None:
    graph = build_graph(
        [span(1, 1, OpKind.RETRIEVE, at=5, scope=ALICE, inputs=[put("memory:r", "old", role=Role.HIT)])]
    )
    assert graph.state(ALICE, 4 * SECOND) == []
    assert graph.state(ALICE, 5 * SECOND) == [VersionKey("memory:r", "", ALICE)]


@pytest.mark.parametrize("seed", range(3))
def test_a_record_of_a_missing_writer_belongs_to_its_first_reader(story: list[OperationSpan], seed: int) -> None:
    bobs = span(6, 1, OpKind.RETRIEVE, at=150, scope=BOB, inputs=[seen("memory:home", PARIS.origin, role=Role.HIT)])
    outside = span(7, 1, OpKind.RESPOND, at=10, inputs=[seen("memory:home", PARIS.origin, role=Role.CONTEXT)])
    left = [one for one in (*story, bobs, outside) if one.origin not in (PARIS.origin, TEA.origin)]
    random.Random(seed).shuffle(left)
    graph = build_graph(left)
    assert graph.history("memory:home", ALICE) == [PARIS, LISBON]
    held = [graph.state(ALICE, second * SECOND) for second in (9, 10, 24, 101)]
    assert held == [[], [PARIS], [LISBON], [LISBON, TEA]]
    assert graph.state(BOB) == []
    (changed,) = graph.diff(ALICE, 10 * SECOND, 30 * SECOND)
    assert (changed.kind, changed.before, changed.after) == (ChangeKind.CHANGED, PARIS, LISBON)
    (learnt,) = graph.diff(ALICE, 30 * SECOND)
    assert (learnt.kind, learnt.after, learnt.operation) == (ChangeKind.LEARNT, TEA, OperationKey(TEA.origin))


@pytest.mark.parametrize("scope", ["", BOB], ids=["no scope", "another scope"])
@pytest.mark.parametrize("action", [Action.DELETE, Action.UPDATE])
def test_a_record_replaced_by_another_memory_is_not_held(
    story: list[OperationSpan], scope: str, action: Action
) -> None:
    previous = [seen("memory:tea", TEA.origin, role=Role.PREVIOUS)]
    output = put("memory:tea", "Coffee", action=action)
    elsewhere = span(6, 1, OpKind.UPDATE, at=60, scope=scope, inputs=previous, outputs=[output])
    graph, new = build_graph([*story, elsewhere]), VersionKey("memory:tea", elsewhere.origin)
    assert graph.state(ALICE, 50 * SECOND) == [LISBON, TEA]
    goes_on = action == Action.UPDATE and not scope  # an operation without a scope changes the record of the owner
    assert graph.state(ALICE) == [LISBON, *([new] if goes_on else [])]
    (change,) = graph.diff(ALICE, 50 * SECOND)
    kind = ChangeKind.CHANGED if goes_on else ChangeKind.FORGOTTEN
    assert (change.kind, change.before, change.after) == (kind, TEA, new)
    assert change.operation == OperationKey(elsewhere.origin)


# --- diff -------------------------------------------------------------------------------------------------------------
def test_a_diff_names_records_learnt_changed_and_forgotten_with_their_operations(story: list[OperationSpan]) -> None:
    graph = forgotten(story)
    learnt = graph.diff(ALICE, 0, 10 * SECOND)
    assert [(c.kind, c.before, c.after, c.operation) for c in learnt] == [
        (ChangeKind.LEARNT, None, PARIS, OperationKey(PARIS.origin))
    ]
    (changed,) = graph.diff(ALICE, 10 * SECOND, 30 * SECOND)
    assert (changed.kind, changed.before, changed.after) == (ChangeKind.CHANGED, PARIS, LISBON)
    (gone,) = graph.diff(ALICE, 50 * SECOND)
    assert (gone.kind, gone.ref, gone.before) == (ChangeKind.FORGOTTEN, "memory:tea", TEA)
    assert gone.operation == OperationKey(origin_of(6, 1))


def test_a_temporary_record_and_a_rewrite_with_equal_content_are_no_change(story: list[OperationSpan]) -> None:
    again = span(
        7, 1, OpKind.UPDATE, at=70, scope=ALICE, inputs=[seen("memory:home", LISBON.origin, role=Role.PREVIOUS)],
        outputs=[put("memory:home", "Lives in Lisbon", action=Action.UPDATE)],
    )  # fmt: skip
    graph = build_graph([*forgotten(story).operations(), again])
    assert [change.ref for change in graph.diff(ALICE, 30 * SECOND)] == []
    assert graph.diff(ALICE, 0) == graph.diff(ALICE, 0, 99 * SECOND)
    assert [change.kind for change in graph.diff(ALICE, 0)] == [ChangeKind.LEARNT]


def test_a_diff_refuses_a_start_after_its_end(story: list[OperationSpan]) -> None:
    with pytest.raises(ValueError, match="later"):
        build_graph(story).diff(ALICE, 2, 1)


# --- slice of a message -----------------------------------------------------------------------------------------------
def test_a_slice_of_a_message_ends_at_the_answers_that_used_it(story: list[OperationSpan]) -> None:
    answer = VersionKey(f"answer:{1:016x}", origin_of(4, 1))
    said = span(
        6, 1, OpKind.INGEST, at=150, scope=ALICE, inputs=[seen(answer.ref, answer.origin, role=Role.MESSAGE)],
        outputs=[put("memory:said", "Paris, it said", action=Action.ADD)],
    )  # fmt: skip
    graph = build_graph([*story, said])
    found = graph.slice_of_message(VersionKey("message:m1", "", ALICE))
    assert {node.ref for node in found if isinstance(node, VersionKey)} == {
        "message:m1", "fact:paris", "memory:home", f"context:{2:016x}", f"answer:{1:016x}",
    }  # fmt: skip
    assert OperationKey(origin_of(4, 3)) in found  # the judgement
    assert OperationKey(said.origin) not in found
    assert not any(node.origin[:32] in (f"{3:032x}", f"{5:032x}") for node in found)
    assert graph.slice_of_message(VersionKey("message:nobody", "", ALICE)) == set()


def test_a_path_goes_through_the_operation_around_a_step_without_inputs() -> None:
    graph = build_graph(
        [
            span(1, 1, OpKind.INGEST, lasts=9, scope=ALICE, inputs=[put("message:m", "hi", role=Role.MESSAGE)]),
            span(1, 2, OpKind.CREATE, parent=1, at=1, outputs=[put("memory:r", "hi", action=Action.ADD)]),
        ]
    )
    message, written = VersionKey("message:m", "", ALICE), VersionKey("memory:r", origin_of(1, 2))
    assert message in graph.ancestors(written)
    assert written in graph.descendants(message)
    assert written in graph.slice_of_message(message)
    assert graph.paths(message, written).found == (
        (message, OperationKey(origin_of(1, 1)), OperationKey(origin_of(1, 2)), written),
    )


# --- paths ------------------------------------------------------------------------------------------------------------
def test_all_paths_from_a_message_to_an_answer(story: list[OperationSpan]) -> None:
    graph = build_graph(story)
    message, answer = VersionKey("message:m1", "", ALICE), VersionKey(f"answer:{1:016x}", origin_of(4, 1))
    (way,) = graph.paths(message, answer).found
    assert [node.ref for node in way if isinstance(node, VersionKey)] == [
        "message:m1", "fact:paris", "memory:home", "memory:home", f"context:{2:016x}", f"answer:{1:016x}",
    ]  # fmt: skip
    assert graph.paths(answer, message).found == ()
    assert graph.paths(message, message).found == ((message,),)


def test_the_shortest_paths_are_found_within_the_limit() -> None:
    text = put("message:m", "hi", role=Role.MESSAGE)
    spans = [span(1, 9, OpKind.CREATE, inputs=[text], outputs=[put("memory:z", "z")])]
    before = text
    for n in range(1, 6):
        spans.append(span(1, n, OpKind.CREATE, at=n, inputs=[before], outputs=[put(f"memory:{n}", f"{n}")]))
        before = seen(f"memory:{n}", spans[-1].origin)
    used = [before, seen("memory:z", origin_of(1, 9))]
    spans.append(span(2, 1, OpKind.RESPOND, at=9, inputs=used, outputs=[put("answer:a", "hi")]))
    graph = build_graph(spans)
    message, answer = VersionKey("message:m", ""), VersionKey("answer:a", origin_of(2, 1))
    for limit, lengths in ((1, [5]), (2, [5, 13]), (3, [5, 13])):
        ways = graph.paths(message, answer, limit=limit)
        assert [len(way) for way in ways.found] == lengths
        assert ways.complete == (limit > 1)


def diamonds(count: int) -> EvolutionGraph:
    """Each version feeds two versions, which feed one version: the number of paths doubles with every step."""
    spans = [span(1, 1, OpKind.CREATE, outputs=[put("state:0", "0")])]
    for n in range(1, count + 1):
        before = seen(f"state:{n - 1}", origin_of(1, 10 * n - 9))
        spans += [
            span(1, 10 * n - k, OpKind.OTHER, at=10 * n, inputs=[before], outputs=[put(f"state:{n}-{k}", "x")])
            for k in (5, 6)
        ]
        spans.append(
            span(
                1, 10 * n + 1, OpKind.OTHER, at=10 * n + 5, outputs=[put(f"state:{n}", "x")],
                inputs=[seen(f"state:{n}-{k}", origin_of(1, 10 * n - k)) for k in (5, 6)],
            )
        )  # fmt: skip
    return build_graph(spans)


def test_paths_past_the_limit_are_reported() -> None:
    graph = diamonds(20)
    start, end = VersionKey("state:0", origin_of(1, 1)), VersionKey("state:20", origin_of(1, 201))
    some = graph.paths(start, end, limit=10)
    assert len(some.found) == 10
    assert not some.complete
    few = diamonds(3).paths(start, VersionKey("state:3", origin_of(1, 31)), limit=8)
    assert len(few.found) == 8
    assert few.complete
    assert all(way[0] == start and len(way) == len(set(way)) for way in few.found)
