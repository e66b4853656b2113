"""Reads of records by several scopes: the same version in memory and from the file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from memtrace_otel.graph import (
    VersionKey,
    build_graph,
    load_slice,
)
from memtrace_otel.model import OperationSpan, Variable
from memtrace_otel.semconv import Action, OpKind, Role
from tests.unit.graph.conftest import ALICE, BOB, origin_of, put, seen, span
from tests.unit.graph.pictures import stored

HOME = "memory:home"
TEAM = "c" * 16


def search(trace: int, variable: Variable, scope: str = BOB) -> OperationSpan:
    return span(trace, 1, OpKind.RETRIEVE, at=10 * trace, scope=scope, inputs=[variable])


def version_read(spans: Sequence[OperationSpan], trace: int) -> VersionKey:
    """The version that a search read, equal in memory and from the file."""
    with stored(list(spans)) as store:
        whole = build_graph(store.spans(), whole=False)
        assert set(load_slice(store, origin_of(trace, 1))) == whole.slice_of_answer(origin_of(trace, 1))
    (only,) = whole.inputs(origin_of(trace, 1))
    return only.version


def test_an_origin_that_names_a_part_leads_to_the_writer() -> None:
    writer = span(1, 1, OpKind.CREATE, at=1, scope=ALICE, inputs=[put("message:m", "hi")])
    part = span(1, 2, OpKind.CREATE, parent=1, part=1, at=1, outputs=[put(HOME, "Rome", action=Action.ADD)])
    assert version_read([writer, part, search(2, seen(HOME, part.origin))], 2) == VersionKey(HOME, writer.origin)


def test_a_read_without_an_origin_finds_no_writer_in_another_scope() -> None:
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
def test_a_reader_without_scope_reads_the_record_with_the_recorded_content(content: str, writer: str) -> None:
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


def test_an_update_of_the_record_of_another_memory_continues_that_record() -> None:
    anns, bobs = written(1, "Rome", ALICE), written(2, "Oslo", BOB)
    moved = written(3, "Bern", BOB, Action.UPDATE, inputs=[seen(HOME, anns.origin, role=Role.PREVIOUS)])
    assert version_read([anns, bobs, moved, search(4, seen(HOME), ALICE)], 4) == VersionKey(HOME, moved.origin)
