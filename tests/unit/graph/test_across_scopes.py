"""Records that several owners read: which of them mean one record, in memory and from the file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from memtrace_otel.graph import (
    EdgeType,
    VersionKey,
    build_graph,
    load_around,
    load_graph,
    load_scope,
    load_slice,
    slice_of_answer,
)
from memtrace_otel.model import OperationSpan, Variable
from memtrace_otel.semconv import Action, OpKind, Role
from memtrace_otel.sources import SqliteStore
from tests.unit.graph.conftest import ALICE, BOB, origin_of, put, seen, span
from tests.unit.graph.pictures import stored

HOME = "memory:home"
TEAM = "c" * 16


def search(trace: int, variable: Variable, scope: str = BOB) -> OperationSpan:
    return span(trace, 1, OpKind.RETRIEVE, at=10 * trace, scope=scope, inputs=[variable])


def version_read(spans: Sequence[OperationSpan], trace: int) -> VersionKey:
    """The one record that a search read: from the file the same as in memory."""
    with stored(list(spans)) as store:
        whole = build_graph(store.spans(), whole=False)
        assert slice_of_answer(store, origin_of(trace, 1)) == whole.slice_of_answer(origin_of(trace, 1))
    (only,) = whole.inputs(origin_of(trace, 1))
    return only.version


def test_an_origin_that_names_a_part_of_the_writer_joins_the_memories() -> None:
    writer = span(1, 1, OpKind.CREATE, at=1, scope=ALICE, inputs=[put("message:m", "hi")])
    part = span(1, 2, OpKind.CREATE, parent=1, part=1, at=1, outputs=[put(HOME, "Rome", action=Action.ADD)])
    spans = [writer, part, search(2, seen(HOME, part.origin)), search(3, seen(HOME))]
    assert version_read(spans, 3) == VersionKey(HOME, writer.origin)


def test_an_origin_of_an_operation_without_the_record_joins_no_memories() -> None:
    writer = span(1, 1, OpKind.CREATE, at=1, scope=ALICE, outputs=[put(HOME, "Rome", action=Action.ADD)])
    passing = search(2, seen(HOME))
    spans = [writer, passing, search(3, seen(HOME, passing.origin), ALICE), search(4, seen(HOME))]
    assert version_read(spans, 4) == VersionKey(HOME, "", BOB)


@pytest.mark.parametrize("ref", ["fact:f", "completion:c"])
@pytest.mark.parametrize("scope", [BOB, ""])
def test_a_fact_is_found_in_its_trace_in_any_scope(ref: str, scope: str) -> None:
    text = span(1, 2, OpKind.EXTRACT, at=1, scope=ALICE, outputs=[put(ref, "Rome", action=Action.DERIVE)])
    spans = [text, span(1, 1, OpKind.CREATE, at=10, scope=scope, inputs=[seen(ref)], outputs=[put(HOME, "Rome")])]
    assert version_read(spans, 1) == VersionKey(ref, text.origin)
    with stored(spans) as store:
        assert VersionKey(ref, text.origin) in load_slice(store, origin_of(1, 1))


@pytest.mark.parametrize(
    ("content", "writer"),
    [("Rome", ALICE), ("Oslo", BOB), ("Bern", ""), ("", "")],
    ids=["hers", "his", "none", "unknown"],
)
def test_a_reader_without_scope_reads_the_record_with_the_content_that_it_saw(content: str, writer: str) -> None:
    writers = {
        scope: span(number, 1, OpKind.CREATE, at=1, scope=scope, outputs=[put(HOME, text, action=Action.ADD)])
        for number, scope, text in ((1, ALICE, "Rome"), (2, BOB, "Oslo"))
    }
    spans = [*writers.values(), search(3, put(HOME, content), "")]
    assert version_read(spans, 3) == VersionKey(HOME, writers[writer].origin if writer else "")


def test_a_version_of_an_unknown_writer_with_different_contents_has_no_content() -> None:
    spans = [search(1, put(HOME, "Paris")), search(2, seen(HOME)), search(3, put(HOME, "Paris"))]
    assert build_graph(spans).content(VersionKey(HOME, "", BOB)) == "Paris"
    spans.append(search(4, put(HOME, "Lyon")))
    assert build_graph(spans).content(VersionKey(HOME, "", BOB)) == ""


def written(trace: int, text: str, scope: str, action: Action = Action.ADD, **fields: Any) -> OperationSpan:
    kind = {Action.ADD: OpKind.CREATE, Action.DELETE: OpKind.DELETE}.get(action, OpKind.UPDATE)
    return span(trace, 1, kind, at=10 * trace, scope=scope, outputs=[put(HOME, text, action=action)], **fields)


@pytest.mark.parametrize("action", [Action.UPDATE, Action.DELETE])
@pytest.mark.parametrize("attempted", [False, True], ids=["looks", "failed to create one"])
def test_a_memory_without_own_record_follows_the_record_that_it_read(action: Action, attempted: bool) -> None:
    first, last = written(1, "Rome", ALICE), written(3, "", ALICE, action)
    failed = [written(5, "Bern", BOB, status="error")] if attempted else []
    spans = [first, search(2, seen(HOME, first.origin)), last, *failed, search(4, seen(HOME))]
    assert version_read(spans, 4) == VersionKey(HOME, last.origin)


@pytest.mark.parametrize("action", [Action.UPDATE, Action.DELETE])
def test_a_change_by_name_after_a_read_changes_the_record_that_was_read(action: Action) -> None:
    first, last = written(1, "Rome", ALICE), written(3, "", BOB, action)
    graph = build_graph([first, search(2, seen(HOME, first.origin)), last])
    assert graph.has_edge(VersionKey(HOME, last.origin), VersionKey(HOME, first.origin), EdgeType.SUPERSEDES)
    assert graph.state(ALICE) == []


def test_an_update_of_the_record_of_another_memory_continues_that_record() -> None:
    anns, bobs = written(1, "Rome", ALICE), written(2, "Oslo", BOB)
    moved = written(3, "Bern", BOB, Action.UPDATE, inputs=[seen(HOME, anns.origin, role=Role.PREVIOUS)])
    assert version_read([anns, bobs, moved, search(4, seen(HOME), ALICE)], 4) == VersionKey(HOME, moved.origin)


class _WithoutScopes:
    """A store as a backend has it: it tells who wrote a record, or not, but of no memory."""

    def __init__(self, store: SqliteStore, knows_writers: bool) -> None:
        self._knows = knows_writers
        self.incomplete: list[str] = []
        self.trace, self.spans, self.readers = store.trace, store.spans, store.readers
        self.trace_ids, self.changed_elsewhere, self._writers = store.trace_ids, store.changed_elsewhere, store.writers

    def writers(self, ref: str) -> list[str]:
        if not self._knows:
            self.incomplete.append(f"the writers of {ref} are not known")
        return self._writers(ref) if self._knows else []


@pytest.mark.parametrize("source", ["file", "knows writers", "knows none"])
@pytest.mark.parametrize("created", [False, True], ids=["created in another trace", "created there"])
def test_a_memory_that_derives_from_the_record_of_another_memory_keeps_its_own_record(
    source: str, created: bool
) -> None:
    """Bob notes something from Ann's record, and updates his own of that name."""
    anns, bobs = written(1, "Rome", ALICE), written(2, "Oslo", BOB)
    if created:
        bobs = span(3, 1, OpKind.CREATE, at=30, scope=BOB, outputs=bobs.outputs)
    note, moved = put("memory:note", "Ann is in Rome", action=Action.ADD), put(HOME, "Bergen", action=Action.UPDATE)
    previous = seen(HOME, role=Role.PREVIOUS)
    turn = [
        span(3, 2, OpKind.CREATE, at=31, scope=BOB, inputs=[seen(HOME, anns.origin)], outputs=[note]),
        span(3, 3, OpKind.UPDATE, at=34, scope=BOB, inputs=[previous], outputs=[moved]),
    ]
    asked = span(6, 1, OpKind.RESPOND, at=60, scope=ALICE, inputs=[put("query:q", "Where?")])
    version = VersionKey(HOME, anns.origin)
    with stored([anns, bobs, *turn, asked]) as store:
        assert build_graph(store.spans()).state(ALICE) == [version]
        assert load_around(store, [f"{HOME}|{anns.origin}"]).state(ALICE) == [version]
        asking = store if source == "file" else _WithoutScopes(store, source == "knows writers")
        for graph in (load_graph(asking, asked.trace_id), load_scope(asking, ALICE)):
            told = created or source != "knows none"
            assert graph.incomplete == ({} if told else {"bounded": 1})
            assert (graph.state(ALICE) == [version]) == told


@pytest.mark.parametrize("scope", [ALICE, BOB])
def test_a_write_of_another_memory_by_the_name_of_a_shared_record_is_loaded(scope: str) -> None:
    """Bob goes on with Ann's record by its origin, from then on both by its name; what others made of that, too."""
    previous = seen(HOME, role=Role.PREVIOUS)
    anns = written(1, "Rome", ALICE)
    bobs = written(2, "Oslo", BOB, Action.UPDATE, inputs=[seen(HOME, anns.origin, role=Role.PREVIOUS)])
    newer = written(3, "Bern", ALICE, Action.UPDATE, inputs=[previous])
    newest = written(4, "Bergen", BOB, Action.UPDATE, inputs=[previous])
    gone = written(5, "", "", Action.DELETE, inputs=[seen(HOME, newest.origin, role=Role.PREVIOUS)])
    with stored([anns, bobs, newer, newest, gone]) as store:
        whole = build_graph(store.spans(), whole=False)
        graph = load_scope(store, scope)
    assert graph.incomplete == {}
    assert graph.state(scope) == whole.state(scope) == []
    assert graph.diff(scope, 0) == whole.diff(scope, 0)
    for operation in whole.operations(scope=scope):
        assert graph.slice_of_answer(operation.origin) == whole.slice_of_answer(operation.origin)
