"""Histories, slices, reachability and contents."""

from __future__ import annotations

import pytest

from memtrace_otel.graph import OperationKey, VersionKey, build_graph
from memtrace_otel.model import OperationSpan, Variable, ref_kind
from memtrace_otel.semconv import Action, OpKind, Role
from tests.unit.graph.conftest import ALICE, BOB, origin_of, put, seen, span


def change(trace: int, at: int, previous: str = "", action: str = Action.UPDATE, **fields: object) -> OperationSpan:
    inputs = [seen("memory:r", previous, role=Role.PREVIOUS)] if previous else []
    return span(
        trace,
        1,
        OpKind.UPDATE,
        at=at,
        scope=ALICE,
        inputs=inputs,
        outputs=[put("memory:r", f"v{trace}", action=action)],
        **fields,
    )


def versions(graph: object, ref: str = "memory:r") -> list[int]:
    return [int(key.origin[:32], 16) for key in graph.history(ref)]  # type: ignore[attr-defined]


# --- history ----------------------------------------------------------------------------------------------------------
def test_history_follows_replacements_before_times() -> None:
    skewed = [
        change(1, at=50, action=Action.ADD),
        change(2, at=10, previous=origin_of(1, 1)),
        change(3, at=30, previous=origin_of(2, 1)),
    ]
    assert versions(build_graph(skewed)) == [1, 2, 3]


def test_without_a_named_previous_the_write_before_is_replaced() -> None:
    graph = build_graph([change(2, at=20), change(1, at=0, action=Action.ADD), change(3, at=40, action=Action.DELETE)])
    assert versions(graph) == [1, 2, 3]
    assert graph.edges[VersionKey("memory:r", origin_of(3, 1)), VersionKey("memory:r", origin_of(2, 1)), "supersedes"][
        "inferred"
    ]


def test_a_change_of_a_record_without_a_writer_replaces_the_unknown_version() -> None:
    reader = span(1, 1, OpKind.RETRIEVE, at=0, scope=ALICE, inputs=[put("memory:r", "before", role=Role.HIT)])
    graph = build_graph([reader, change(2, at=9)])
    assert graph.history("memory:r") == [VersionKey("memory:r", "", ALICE), VersionKey("memory:r", origin_of(2, 1))]
    assert graph.content(VersionKey("memory:r", "", ALICE)) == "before"


def test_circular_replacements_end() -> None:
    graph = build_graph(
        [change(1, at=0, previous=origin_of(2, 1)), change(2, at=10, previous=origin_of(1, 1)), change(3, at=20)]
    )
    assert sorted(versions(graph)) == [1, 2, 3]
    assert versions(graph)[-1] == 3


def test_history_and_writers_of_one_scope() -> None:
    other = span(9, 1, OpKind.CREATE, at=5, scope=BOB, outputs=[put("memory:r", "bob's", action=Action.ADD)])
    graph = build_graph([change(1, at=0, action=Action.ADD), other])
    assert graph.history("memory:r", BOB) == [VersionKey("memory:r", origin_of(9, 1))]
    assert graph.writers("memory:r", ALICE) == [graph.operation(origin_of(1, 1))]
    assert len(graph.writers("memory:r")) == 2


# --- reachability -----------------------------------------------------------------------------------------------------
def test_a_slice_holds_the_path_from_message_to_answer_and_only_its_question(story: list[OperationSpan]) -> None:
    graph = build_graph(story)
    found = graph.slice_of_answer(origin_of(4, 1))
    assert {node.ref for node in found if isinstance(node, VersionKey)} == {
        f"answer:{1:016x}", f"context:{2:016x}", "query:q1", "memory:home", "memory:tea",
        "fact:paris", "fact:lisbon", "fact:tea", "message:m1", "message:m2", "message:m3",
    }  # fmt: skip
    assert OperationKey(origin_of(2, 3)) in found
    assert {node.origin[:32] for node in found if isinstance(node, OperationKey)} == {f"{n:032x}" for n in (1, 2, 3, 4)}


@pytest.mark.parametrize("asked", [[], [seen("query:q1", role=Role.QUERY)]])
def test_a_slice_of_a_judgement_contains_the_slice_of_the_answer(
    story: list[OperationSpan], asked: list[Variable]
) -> None:
    answer = seen(f"answer:{1:016x}", origin_of(4, 1), role=Role.ANSWER)
    judge = span(60, 1, OpKind.JUDGE, at=500, inputs=[*asked, answer], outputs=[put("completion:c", "wrong")])
    graph = build_graph([*story, judge])
    behind = graph.slice_of_answer(origin_of(4, 1))
    assert graph.slice_of_answer(judge.origin) == {*behind, OperationKey(judge.origin), *graph.outputs(judge.origin)}


def test_a_question_is_no_ancestor_of_a_memory(story: list[OperationSpan]) -> None:
    graph = build_graph(story)
    for ref in ("memory:home", "memory:tea"):
        for version in graph.history(ref):
            kinds = {ref_kind(node.ref) for node in graph.ancestors(version) if isinstance(node, VersionKey)}
            assert kinds <= {"fact", "message", "memory"}


def test_a_memory_made_from_an_earlier_answer_does_not_lead_to_its_question(story: list[OperationSpan]) -> None:
    said = span(
        6, 1, OpKind.INGEST, at=60, scope=ALICE,
        inputs=[seen(f"answer:{1:016x}", origin_of(5, 1), role=Role.MESSAGE)],
        outputs=[put("memory:home", "Lives in Paris, the assistant said", action=Action.UPDATE)],
    )  # fmt: skip
    late = [s for s in story if s.trace_id != f"{4:032x}"]
    ask = span(
        7, 1, OpKind.RESPOND, at=200, scope=ALICE,
        inputs=[put("query:q9", "q9?", role=Role.QUERY), seen("memory:home", origin_of(6, 1), role=Role.CONTEXT)],
    )  # fmt: skip
    found = build_graph([*late, said, ask]).slice_of_answer(ask.origin)
    assert {node.ref for node in found if isinstance(node, VersionKey) and ref_kind(node.ref) == "query"} == {
        "query:q9"
    }
    assert VersionKey(f"answer:{1:016x}", origin_of(5, 1)) in found


def test_a_search_for_writing_does_not_lead_to_its_query() -> None:
    search = span(
        1, 2, OpKind.RETRIEVE, parent=1, at=1,
        inputs=[put("query:inner", "similar?", role=Role.QUERY)], outputs=[put("context:similar", "none")],
    )  # fmt: skip
    write = span(
        1, 3, OpKind.CREATE, parent=1, at=3,
        inputs=[seen("context:similar", search.origin, role=Role.CANDIDATE), put("message:m", "hi", role=Role.MESSAGE)],
        outputs=[put("memory:r", "hi", action=Action.ADD)],
    )  # fmt: skip
    ask = span(
        2, 1, OpKind.RESPOND, at=9,
        inputs=[put("query:q", "q?", role=Role.QUERY), seen("memory:r", write.origin, role=Role.CONTEXT)],
    )  # fmt: skip
    graph = build_graph([span(1, 1, OpKind.INGEST, lasts=9, scope=ALICE), search, write, ask])
    refs = {node.ref for node in graph.slice_of_answer(ask.origin) if isinstance(node, VersionKey)}
    assert refs == {"query:q", "memory:r", "message:m", "context:similar"}


def test_an_earlier_reply_of_another_question_is_not_entered() -> None:
    def chat(trace: int, query: str, *history: object) -> OperationSpan:
        return span(
            trace, 1, OpKind.RESPOND, at=trace * 10,
            inputs=[put(query, query, role=Role.QUERY), *history], outputs=[put(f"answer:{trace}", "text")],
        )  # fmt: skip

    first, second = chat(1, "query:q1"), chat(2, "query:q2", seen("answer:1", origin_of(1, 1), role=Role.HISTORY))
    again = chat(3, "query:q2", seen("answer:2", origin_of(2, 1), role=Role.HISTORY))
    found = build_graph([first, second, again]).slice_of_answer(again.origin)
    assert OperationKey(second.origin) in found
    assert OperationKey(first.origin) not in found
    assert "query:q1" not in {node.ref for node in found if isinstance(node, VersionKey)}


def test_a_step_without_inputs_has_the_inputs_of_the_operation_around() -> None:
    outer = span(1, 1, OpKind.INGEST, lasts=9, scope=ALICE, inputs=[put("message:m", "hi", role=Role.MESSAGE)])
    inner = span(1, 2, OpKind.CREATE, parent=1, at=1, outputs=[put("memory:r", "hi", action=Action.ADD)])
    graph = build_graph([outer, inner])
    assert VersionKey("message:m", "", ALICE) in graph.ancestors(VersionKey("memory:r", inner.origin))


def test_a_record_with_action_none_is_no_source_of_other_outputs() -> None:
    decide = span(
        2, 1, OpKind.DECIDE, at=9, scope=ALICE,
        inputs=[put("message:m", "hi", role=Role.MESSAGE)],
        outputs=[put("memory:new", "hi", action=Action.ADD), put("memory:r", "v1", action=Action.NONE)],
    )  # fmt: skip
    graph = build_graph([change(1, at=0, action=Action.ADD), decide])
    assert VersionKey("memory:r", origin_of(1, 1)) not in graph.ancestors(VersionKey("memory:new", decide.origin))
    assert graph.descendants(VersionKey("memory:r", origin_of(1, 1))) == {OperationKey(decide.origin)}


def test_readers_come_in_time_order(story: list[OperationSpan]) -> None:
    graph = build_graph(story)
    (tea,) = graph.history("memory:tea")
    assert [read.operation.origin for read in graph.readers(tea)] == [origin_of(4, 2), origin_of(5, 2)]


def test_operations_by_kind_scope_and_trace(story: list[OperationSpan]) -> None:
    graph = build_graph(story)
    assert [s.origin for s in graph.operations(kind="respond")] == [origin_of(4, 1), origin_of(5, 1)]
    assert [s.origin for s in graph.operations(trace_id=f"{2:032x}")] == [origin_of(2, n) for n in (1, 2, 3)]
    assert {s.trace_id for s in graph.operations(scope=ALICE, kind="extract")} == {f"{n:032x}" for n in (1, 2, 3)}


def test_queries_about_unknown_nodes_are_empty(story: list[OperationSpan]) -> None:
    graph, nowhere = build_graph(story), VersionKey("memory:x", origin_of(77, 7))
    assert (graph.inputs("?"), graph.outputs("?"), graph.history("?"), graph.readers(nowhere)) == ([], [], [], [])
    assert graph.slice_of_answer("?") == graph.ancestors(nowhere) == graph.descendants(nowhere) == set()
    assert (graph.content(nowhere), graph.operation("?"), graph.producer(nowhere)) == ("", None, None)
    assert build_graph([]).operations() == []


# --- contents ---------------------------------------------------------------------------------------------------------
def written(**fields: object) -> OperationSpan:
    return span(1, 1, OpKind.CREATE, scope=ALICE, outputs=[put("memory:r", **fields)])  # type: ignore[arg-type]


def read(content: str, **fields: object) -> OperationSpan:
    return span(
        2, 1, OpKind.RETRIEVE, at=9, scope=ALICE, inputs=[put("memory:r", content, origin=origin_of(1, 1), **fields)]
    )


WHOLE = put("memory:r", "Lives in Paris near the river")


@pytest.mark.parametrize(
    ("spans", "content", "truncated"),
    [
        ([written(content=WHOLE.content)], WHOLE.content, False),
        ([written(content="Lives in", size=29, digest=WHOLE.digest)], "Lives in", True),
        ([written(content="Lives in", size=None, digest=WHOLE.digest)], "Lives in", True),
        ([written(content="", size=29, digest=WHOLE.digest)], "", False),
        ([written(content="Lives in", size=29, digest=WHOLE.digest), read(WHOLE.content)], WHOLE.content, False),
        ([written(content="", size=29, digest=WHOLE.digest), read("Another text")], "", False),
        ([read("Lives", digest=WHOLE.digest, size=None)], "Lives", True),
    ],
    ids=["whole", "cut-by-size", "cut-by-digest", "off", "reader-saw-it-whole", "reader-saw-another", "reader-cut"],
)  # fmt: skip
def test_the_best_known_content(spans: list[OperationSpan], content: str, truncated: bool) -> None:
    graph = build_graph(spans)
    version = VersionKey("memory:r", origin_of(1, 1))
    assert (graph.content(version), graph.nodes[version]["truncated"]) == (content, truncated)


def test_keyed_digests_do_not_make_contents_look_cut() -> None:
    keyed = [
        span(1, 1, OpKind.CREATE, scope=ALICE, outputs=[put("memory:r", "text", digest="0" * 16)]),
        span(2, 1, OpKind.INGEST, at=5, scope=ALICE, inputs=[put("message:m", "hello", digest="1" * 16, size=None)]),
    ]
    graph = build_graph(keyed)
    assert not any(node.get("truncated") for _, node in graph.nodes(data=True))


def test_a_tombstone_has_no_content() -> None:
    graph = build_graph(
        [change(1, at=0, action=Action.ADD), change(2, at=5, action=Action.DELETE, previous=origin_of(1, 1))]
    )
    assert [graph.content(version) for version in graph.history("memory:r")] == ["v1", ""]
