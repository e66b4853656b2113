"""Identity of versions, continuation parts, origins that are given, missing or inferred."""

from __future__ import annotations

import pytest

from memtrace_otel.graph import OperationKey, VersionKey, build_graph
from memtrace_otel.model import Event, OperationSpan
from memtrace_otel.semconv import ATTRIBUTION_SCOPE, EVALUATION_EVENT, Action, OpKind, Role
from tests.unit.graph.conftest import ALICE, BOB, origin_of, put, seen, span


def only_read(spans: list[OperationSpan], reader: OperationSpan, index: int = 0) -> tuple[VersionKey, bool]:
    read = build_graph([*spans, reader]).inputs(reader.origin)[index]
    return read.version, read.inferred


def add(
    trace: int, at: int, ref: str = "memory:r", content: str = "", scope: str = ALICE, **fields: object
) -> OperationSpan:
    action = str(fields.pop("action", Action.ADD))
    return span(trace, 1, OpKind.CREATE, at=at, scope=scope, outputs=[put(ref, content, action=action)], **fields)


def search(
    trace: int, at: int, ref: str = "memory:r", scope: str = ALICE, origin: str = "", **fields: object
) -> OperationSpan:
    return span(trace, 1, OpKind.RETRIEVE, at=at, scope=scope, inputs=[seen(ref, origin, role=Role.HIT, **fields)])


def test_a_version_is_a_ref_and_the_span_that_produced_it(story: list[OperationSpan]) -> None:
    graph = build_graph(story)
    assert graph.outputs(origin_of(2, 3)) == [VersionKey("memory:home", origin_of(2, 3))]
    assert graph.history("memory:home") == [
        VersionKey("memory:home", origin_of(1, 3)),
        VersionKey("memory:home", origin_of(2, 3)),
    ]
    assert graph.incomplete == {}
    hits = [read for read in graph.inputs(origin_of(4, 2)) if read.role == Role.HIT]
    assert [(read.version.ref, read.rank, read.score, read.inferred) for read in hits] == [
        ("memory:home", 1, 0.9, False),
        ("memory:tea", 2, 0.3, False),
    ]


def test_a_root_is_one_node_per_scope() -> None:
    readers = [
        span(n, 1, OpKind.INGEST, at=n, scope=scope, inputs=[put("message:m", "hi", role=Role.MESSAGE)])
        for n, scope in ((1, ALICE), (2, ALICE), (3, BOB))
    ]
    graph = build_graph(readers)
    assert graph.messages() == [VersionKey("message:m", "", ALICE), VersionKey("message:m", "", BOB)]
    assert graph.messages(BOB) == [VersionKey("message:m", "", BOB)]
    assert graph.incomplete == {}


# --- continuation parts -----------------------------------------------------------------------------------------------
def parted() -> list[OperationSpan]:
    main = span(1, 1, OpKind.CONSOLIDATE, scope=ALICE, inputs=[put("message:m0", "zero")])
    first = span(
        1, 2, OpKind.CONSOLIDATE, parent=1, part=1, inputs=[put("message:m1", "one")], outputs=[put("memory:a", "A")]
    )
    second = span(1, 3, OpKind.CONSOLIDATE, parent=1, part=2, outputs=[put("memory:b", "B")], flow=((0, 0), (1, 1)))
    return [main, first, second]


def test_parts_join_in_part_order_and_flow_counts_over_all_of_them() -> None:
    graph = build_graph(reversed(parted()))
    joined = graph.operation(origin_of(1, 1))
    assert joined is not None
    assert [v.ref for v in joined.inputs] == ["message:m0", "message:m1"]
    assert [v.ref for v in joined.outputs] == ["memory:a", "memory:b"]
    assert VersionKey("message:m1", "", ALICE) in graph.ancestors(VersionKey("memory:b", origin_of(1, 1)))
    assert VersionKey("message:m0", "", ALICE) not in graph.ancestors(VersionKey("memory:b", origin_of(1, 1)))
    assert len(graph.operations()) == 1
    assert graph.incomplete == {}


def test_an_origin_that_names_a_part_means_the_operation() -> None:
    version, inferred = only_read(parted(), search(2, at=9, ref="memory:b", origin=origin_of(1, 3)))
    assert (version, inferred) == (VersionKey("memory:b", origin_of(1, 1)), False)


def test_parts_without_their_operation_become_the_operation() -> None:
    graph = build_graph([*parted()[1:], search(2, at=9, ref="memory:a", origin=origin_of(1, 1))])
    assert graph.incomplete == {"lost_parts": 1}
    assert graph.outputs(origin_of(1, 1)) == [
        VersionKey("memory:a", origin_of(1, 1)),
        VersionKey("memory:b", origin_of(1, 1)),
    ]
    assert graph.inputs(origin_of(2, 1))[0].version == VersionKey("memory:a", origin_of(1, 1))


def test_a_lost_middle_part_makes_the_flow_unknown() -> None:
    """Without the first part and its output, `0>0` would mean that message 0 fed memory b."""
    main = span(1, 1, OpKind.CONSOLIDATE, scope=ALICE, inputs=[put("message:m0"), put("message:m1")])
    second = span(
        1, 3, OpKind.CONSOLIDATE, parent=1, part=2, outputs=[put("memory:b", "B")], flow=((0, 0), (1, 1))
    )  # fmt: skip
    graph = build_graph([main, second])
    assert graph.incomplete == {"lost_parts": 1}
    assert graph.sources(VersionKey("memory:b", main.origin)) == [
        VersionKey("message:m0", "", ALICE),
        VersionKey("message:m1", "", ALICE),
    ]


def test_a_flow_past_the_variables_shows_a_lost_last_part() -> None:
    main, first, _ = parted()
    cut = span(1, 1, OpKind.CONSOLIDATE, scope=ALICE, inputs=main.inputs, flow=((0, 0), (1, 1)))
    graph = build_graph([cut, first])
    assert graph.incomplete == {"lost_parts": 1}
    assert graph.operation(cut.origin) is not None


# --- origins ----------------------------------------------------------------------------------------------------------
def test_a_missing_producer_is_an_explicit_unknown_operation() -> None:
    graph = build_graph([search(2, at=9, origin=origin_of(1, 1))])
    version = VersionKey("memory:r", origin_of(1, 1))
    assert graph.nodes[OperationKey(origin_of(1, 1))]["span"] is None
    assert graph.producer(version) == OperationKey(origin_of(1, 1))
    assert graph.operation(origin_of(1, 1)) is None
    assert graph.incomplete == {"missing_operation": 1}


def test_a_producer_that_does_not_list_the_variable_is_flagged() -> None:
    graph = build_graph([span(1, 1, OpKind.INGEST, scope=ALICE), search(2, at=9, origin=origin_of(1, 1))])
    assert graph.nodes[OperationKey(origin_of(1, 1))]["incomplete"] == ("undeclared_output",)


def test_a_read_without_origin_saw_the_last_write_before() -> None:
    writes = [add(1, at=0), add(2, at=10, action=Action.UPDATE), add(3, at=30, action=Action.UPDATE)]
    assert only_read(writes, search(9, at=20)) == (VersionKey("memory:r", origin_of(2, 1)), True)
    assert only_read(writes, search(9, at=40)) == (VersionKey("memory:r", origin_of(3, 1)), True)


def test_a_running_write_is_read_only_when_no_write_has_ended() -> None:
    running = add(2, at=10, lasts=50, action=Action.UPDATE)
    assert only_read([add(1, at=0), running], search(9, at=20))[0] == VersionKey("memory:r", origin_of(1, 1))
    assert only_read([running], search(9, at=20)) == (VersionKey("memory:r", origin_of(2, 1)), True)
    assert only_read([running], search(9, at=5))[0] == VersionKey("memory:r", "", ALICE)


def test_equal_times_are_ordered_by_sequence_numbers_of_one_process_only() -> None:
    write = add(1, at=5, lasts=0, seq=1, resource={"process.pid": 7})
    near = span(2, 1, OpKind.RETRIEVE, at=5, scope=ALICE, seq=2, resource={"process.pid": 7}, inputs=[seen("memory:r")])
    far = span(2, 1, OpKind.RETRIEVE, at=5, scope=ALICE, seq=2, resource={"process.pid": 8}, inputs=[seen("memory:r")])
    assert only_read([write], near) == (VersionKey("memory:r", origin_of(1, 1)), True)
    assert only_read([write], far) == (VersionKey("memory:r", "", ALICE), False)


def test_the_content_read_decides_before_the_time() -> None:
    writes = [add(1, at=0, content="A"), add(2, at=10, content="B", action=Action.UPDATE)]
    stale = search(9, at=20, digest=put("x:x", "A").digest)
    assert only_read(writes, stale) == (VersionKey("memory:r", origin_of(1, 1)), True)


def test_an_operation_around_a_read_has_not_written_yet() -> None:
    around = add(2, at=10, lasts=20, action=Action.UPDATE)
    inside = span(2, 2, OpKind.RETRIEVE, parent=1, at=12, inputs=[seen("memory:r")])
    assert only_read([around], inside)[0] == VersionKey("memory:r", "", ALICE)
    assert only_read([around, add(1, at=0)], inside)[0] == VersionKey("memory:r", origin_of(1, 1))


def test_a_tombstone_is_read_only_when_it_is_the_last_write() -> None:
    deleted = add(2, at=10, action=Action.DELETE)
    graph = build_graph([add(1, at=0), deleted, search(9, at=20)])
    assert graph.inputs(origin_of(9, 1))[0].version == VersionKey("memory:r", origin_of(2, 1))
    assert graph.is_tombstone(VersionKey("memory:r", origin_of(2, 1)))
    again = add(3, at=15, content="again")
    assert only_read([add(1, at=0), deleted, again], search(9, at=20))[0] == VersionKey("memory:r", origin_of(3, 1))


def test_a_record_of_another_owner_is_never_shown() -> None:
    graph = build_graph([add(1, at=0, content="secret"), search(9, at=5, scope=BOB)])
    [read] = graph.inputs(origin_of(9, 1))
    assert (read.version, graph.content(read.version)) == (VersionKey("memory:r", "", BOB), "")


def test_a_universally_unique_id_is_one_record_under_any_owner() -> None:
    ref = "memory:0b24cd2b-d3d2-4f4c-9a3f-27dd0a9e5d3c"
    writes = [add(1, at=0, ref=ref), add(2, at=5, ref=ref, scope=BOB, action=Action.UPDATE)]
    assert only_read(writes, search(9, at=9, ref=ref))[0] == VersionKey(ref, origin_of(2, 1))
    assert build_graph(writes).has_edge(VersionKey(ref, origin_of(2, 1)), VersionKey(ref, origin_of(1, 1)))


def test_a_recorded_origin_shows_that_two_owners_mean_one_record() -> None:
    update = span(
        2,
        1,
        OpKind.UPDATE,
        at=5,
        scope=BOB,
        inputs=[seen("memory:r", origin_of(1, 1), role=Role.PREVIOUS)],
        outputs=[put("memory:r", "new", action=Action.UPDATE)],
    )
    assert only_read([add(1, at=0), update], search(9, at=9))[0] == VersionKey("memory:r", origin_of(2, 1))


def test_a_child_without_scope_reads_in_the_scope_of_its_parent() -> None:
    root = span(2, 1, OpKind.INGEST, at=9, lasts=9, scope=ALICE)
    plain = span(2, 2, "", parent=1, at=10, lasts=5)
    inner = span(2, 3, OpKind.RETRIEVE, parent=2, at=11, inputs=[seen("memory:r")])
    graph = build_graph([root, plain, inner, add(1, at=0), add(3, at=0, scope=BOB)])
    assert graph.inputs(inner.origin)[0].version == VersionKey("memory:r", origin_of(1, 1))
    assert graph.scope_of(inner.origin) == ALICE
    assert graph.enclosing(inner.origin) == root
    assert graph.enclosed(root.origin) == [inner]
    assert graph.operation(plain.origin) is None


def test_a_reply_without_origin_is_found_only_in_its_trace() -> None:
    reply = span(1, 1, OpKind.OTHER, at=0, scope=ALICE, outputs=[put("completion:ok", "ok")])
    same = span(1, 2, OpKind.DECIDE, at=5, scope=ALICE, inputs=[seen("completion:ok")])
    other = span(2, 2, OpKind.DECIDE, at=5, scope=ALICE, inputs=[seen("completion:ok")])
    assert only_read([reply], same) == (VersionKey("completion:ok", origin_of(1, 1)), True)
    assert only_read([reply], other) == (VersionKey("completion:ok", "", ALICE), False)


def test_an_answering_span_finds_the_context_made_inside_it() -> None:
    respond = span(1, 1, OpKind.RESPOND, at=0, lasts=9, inputs=[seen("context:c", role=Role.CONTEXT)])
    inside = span(1, 2, OpKind.RETRIEVE, parent=1, at=1, outputs=[put("context:c", "text")])
    assert only_read([inside], respond) == (VersionKey("context:c", origin_of(1, 2)), True)


def test_a_span_is_never_its_own_source() -> None:
    selfish = span(
        1, 1, OpKind.UPDATE, scope=ALICE, inputs=[seen("memory:r", origin_of(1, 1))], outputs=[put("memory:r", "x")]
    )
    graph = build_graph([selfish])
    assert graph.inputs(selfish.origin)[0].version == VersionKey("memory:r", "", ALICE)


def test_an_invalid_origin_is_unknown() -> None:
    graph = build_graph([search(1, at=1, origin="yesterday")])
    assert graph.incomplete == {"unknown_origin": 1}


def test_an_origin_unknown_to_capture_and_found_by_the_graph_is_no_gap() -> None:
    found = span(
        9, 1, OpKind.RETRIEVE, at=9, scope=ALICE, inputs=[seen("memory:r")], incomplete=("unknown_origin", "truncated")
    )
    assert build_graph([add(1, at=0), found]).incomplete == {"truncated": 1}
    assert build_graph([found]).incomplete == {"truncated": 1, "unknown_origin": 1}


# --- outputs that are no versions -------------------------------------------------------------------------------------
def test_a_record_with_action_none_is_read_and_not_written() -> None:
    decide = span(2, 1, OpKind.DECIDE, at=5, scope=ALICE, outputs=[put("memory:r", "A", action=Action.NONE)])
    graph = build_graph([add(1, at=0, content="A"), decide, search(3, at=9), search(4, at=9, origin=decide.origin)])
    assert graph.history("memory:r") == [VersionKey("memory:r", origin_of(1, 1))]
    (read,) = graph.inputs(decide.origin)
    assert (read.version.origin, read.considered, read.role) == (origin_of(1, 1), True, Role.CANDIDATE)
    assert graph.inputs(origin_of(3, 1))[0].version == VersionKey("memory:r", origin_of(1, 1))
    assert graph.inputs(origin_of(4, 1))[0].version == VersionKey("memory:r", origin_of(1, 1))
    assert graph.version("memory:r", decide.origin) == VersionKey("memory:r", origin_of(1, 1))


def test_a_search_that_lists_its_hits_as_outputs_does_not_produce_them() -> None:
    listing = span(2, 1, OpKind.RETRIEVE, at=5, scope=ALICE, outputs=[put("memory:r", "A", action=Action.DERIVE)])
    later = search(3, at=9, origin=listing.origin)
    graph = build_graph([add(1, at=0, content="A"), listing, later])
    assert graph.history("memory:r") == [VersionKey("memory:r", origin_of(1, 1))]
    assert graph.inputs(later.origin)[0].version == VersionKey("memory:r", origin_of(1, 1))
    assert graph.inputs(listing.origin)[0].role == Role.HIT


def test_an_output_repeated_by_the_operation_around_is_one_version() -> None:
    outer = span(1, 1, OpKind.INGEST, at=0, lasts=9, scope=ALICE, outputs=[put("memory:r", "A", action=Action.ADD)])
    inner = span(1, 2, OpKind.CREATE, parent=1, at=1, outputs=[put("memory:r", "A", action=Action.ADD)])
    graph = build_graph([outer, inner, search(2, at=20), search(3, at=30, origin=outer.origin)])
    written = VersionKey("memory:r", inner.origin)
    assert graph.history("memory:r") == [written]
    assert graph.outputs(outer.origin) == [written]
    assert graph.version("memory:r", outer.origin) == written
    assert [read.operation.origin for read in graph.readers(written)] == [origin_of(2, 1), origin_of(3, 1)]


def test_an_outer_operation_with_another_content_writes_another_version() -> None:
    outer = span(1, 1, OpKind.INGEST, at=0, lasts=9, scope=ALICE, outputs=[put("memory:r", "B", action=Action.UPDATE)])
    inner = span(1, 2, OpKind.CREATE, parent=1, at=1, outputs=[put("memory:r", "A", action=Action.ADD)])
    assert len(build_graph([outer, inner]).history("memory:r")) == 2


# --- spans that are no operations -------------------------------------------------------------------------------------
def test_spans_of_verdicts_are_not_in_the_graph(story: list[OperationSpan]) -> None:
    verdict = span(4, 9, "", parent=1, instrumentation_scope=ATTRIBUTION_SCOPE, outputs=[put("memory:home", "?")])
    assert set(build_graph([*story, verdict])) == set(build_graph(story))


def test_a_plain_span_with_an_evaluation_is_kept() -> None:
    plain = span(1, 1, "", events=(Event(EVALUATION_EVENT, 1, {"gen_ai.evaluation.score.label": "fail"}),))
    assert build_graph([plain, span(1, 2, "", parent=1)]).operations() == [plain]


@pytest.mark.parametrize(
    ("read", "found"),
    [
        ({"content": "Lives in Paris"}, 1),  # an older version, stale
        ({"content": "Lives in Lisbon"}, 2),
        ({"content": "Lives in Rome"}, None),  # no span wrote this content
        ({}, 2),  # without content: the last version
    ],
)
def test_a_read_without_origin_saw_the_version_with_its_digest(read: dict[str, str], found: int | None) -> None:
    writes = [
        span(1, 1, OpKind.CREATE, at=1, scope=ALICE, outputs=[put("memory:home", "Lives in Paris", action=Action.ADD)]),
        span(2, 1, OpKind.UPDATE, at=2, scope=ALICE,
             outputs=[put("memory:home", "Lives in Lisbon", action=Action.UPDATE)]),
    ]  # fmt: skip
    search = span(9, 1, OpKind.RETRIEVE, at=9, scope=ALICE, inputs=[put("memory:home", role=Role.HIT, **read)])
    graph = build_graph([*writes, search])
    (seen_,) = graph.inputs(search.origin)
    assert seen_.version == VersionKey("memory:home", origin_of(found, 1) if found else "", "" if found else ALICE)
    assert seen_.inferred == (found is not None)
    assert graph.nodes[seen_.version]["unknown"] == (found is None)
    assert graph.incomplete == ({} if found else {"unknown_origin": 1})
