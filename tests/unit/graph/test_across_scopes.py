"""Records that several owners read: which of them mean one record, in memory and from the file."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

import pytest

from memtrace_otel.graph import GrowingGraph, VersionKey, build_graph, load_slice, slice_of_answer
from memtrace_otel.model import OperationSpan, Variable
from memtrace_otel.semconv import Action, OpKind
from memtrace_otel.store.outlines import Outline
from tests.unit.graph.conftest import ALICE, BOB, origin_of, put, seen, span
from tests.unit.graph.test_streams import stored, told

HOME = "memory:home"


def search(trace: int, variable: Variable, scope: str = BOB) -> OperationSpan:
    return span(trace, 1, OpKind.RETRIEVE, at=10 * trace, scope=scope, inputs=[variable])


def version_read(spans: Sequence[OperationSpan], trace: int) -> VersionKey:
    """The one record that a search read: from the file the same as in memory."""
    with stored(list(spans)) as store:
        whole = build_graph(store.spans(), whole=False)
        assert slice_of_answer(store, origin_of(trace, 1)) == whole.slice_of_answer(origin_of(trace, 1))
    (only,) = whole.inputs(origin_of(trace, 1))
    return only.version


def test_who_names_a_part_of_the_writer_names_the_writer() -> None:
    writer = span(1, 1, OpKind.CREATE, at=1, scope=ALICE, inputs=[put("message:m", "hi")])
    part = span(1, 2, OpKind.CREATE, parent=1, part=1, at=1, outputs=[put(HOME, "Rome", action=Action.ADD)])
    spans = [writer, part, search(2, seen(HOME, part.origin)), search(3, seen(HOME))]
    assert version_read(spans, 3) == VersionKey(HOME, writer.origin)


def test_who_names_an_operation_that_does_not_list_the_record_says_nothing_about_owners() -> None:
    writer = span(1, 1, OpKind.CREATE, at=1, scope=ALICE, outputs=[put(HOME, "Rome", action=Action.ADD)])
    passing = search(2, seen(HOME))
    spans = [writer, passing, search(3, seen(HOME, passing.origin), ALICE), search(4, seen(HOME))]
    assert version_read(spans, 4) == VersionKey(HOME, "", BOB)


@pytest.mark.parametrize("ref", ["fact:f", "completion:c"])
@pytest.mark.parametrize("scope", [BOB, ""])
def test_what_its_text_names_is_of_the_trace_whatever_the_scope(ref: str, scope: str) -> None:
    text = span(1, 2, OpKind.EXTRACT, at=1, scope=ALICE, outputs=[put(ref, "Rome", action=Action.DERIVE)])
    spans = [text, span(1, 1, OpKind.CREATE, at=10, scope=scope, inputs=[seen(ref)], outputs=[put(HOME, "Rome")])]
    assert version_read(spans, 1) == VersionKey(ref, text.origin)
    with stored(spans) as store:
        assert VersionKey(ref, text.origin) in load_slice(store, origin_of(1, 1))


@pytest.mark.parametrize("ref", ["fact:f", "completion:c"])
def test_a_failed_write_is_there_for_its_trace_where_another_memory_names_it(ref: str) -> None:
    text = span(
        1, 2, OpKind.EXTRACT, at=1, scope=ALICE, outputs=[put(ref, "Rome", action=Action.UPDATE)], status="error"
    )
    other = search(2, seen(ref, text.origin), "c" * 16)
    spans = [text, other, span(1, 1, OpKind.CREATE, at=10, scope=BOB, inputs=[seen(ref)])]
    assert version_read(spans, 1) == VersionKey(ref, text.origin)
    with stored(spans) as store:
        whole = build_graph(store.spans(), whole=False)
        part = whole.part(whole.slice_of_answer(origin_of(1, 1)))
        assert told(load_slice(store, origin_of(1, 1))) == told(part)


def test_owners_are_told_apart_for_each_reader_of_a_trace() -> None:
    """The first reader needs no other than the writers, the second one in the same trace does."""
    writer = span(1, 1, OpKind.CREATE, at=1, scope=ALICE, outputs=[put(HOME, "Rome", action=Action.ADD)])
    both = [
        span(
            3, 1, OpKind.RESPOND, at=30, inputs=[seen("context:a", origin_of(3, 2)), seen("context:b", origin_of(3, 3))]
        ),
        span(3, 2, OpKind.RETRIEVE, parent=1, at=31, scope=ALICE, inputs=[seen(HOME)], outputs=[put("context:a", "a")]),
        span(3, 3, OpKind.RETRIEVE, parent=1, at=31, scope=BOB, inputs=[seen(HOME)], outputs=[put("context:b", "b")]),
    ]
    with stored([writer, search(2, seen(HOME, writer.origin)), *both]) as store:
        whole = build_graph(store.spans(), whole=False)
        found = slice_of_answer(store, origin_of(3, 1))
        assert found == whole.slice_of_answer(origin_of(3, 1))
    assert VersionKey(HOME, writer.origin) in found
    assert VersionKey(HOME, "", BOB) not in found


@pytest.mark.parametrize("joined", [False, True])
def test_a_slice_reads_no_memory_that_means_another_record_by_the_same_name(joined: bool) -> None:
    """`joined`: a reader of one memory names what another one wrote, so that both mean one record."""
    scopes = [f"{number:016x}" for number in range(1, 9)]
    spans = [
        span(
            10 * round + number,
            1,
            OpKind.UPDATE,
            at=100 * round + number,
            scope=scope,
            inputs=earlier,
            outputs=[put(HOME, "Rome", action=Action.UPDATE)],
        )
        for number, scope in enumerate(scopes)
        for round, earlier in ((1, []), (2, [seen(HOME, origin_of(10 + number, 1))]))
    ]
    origin = origin_of(90, 1)
    spans.append(span(90, 1, OpKind.RESPOND, at=500, scope=scopes[0], inputs=[seen(HOME, origin_of(20, 1))]))
    if joined:
        spans.append(search(91, seen(HOME, origin_of(21, 1)), scopes[0]))
    with stored(spans) as store:
        read: set[str] = set()
        outlines = store.outlines

        def noted(trace_ids: Collection[str]) -> Iterable[Outline]:
            read.update(trace_ids)
            return outlines(trace_ids)

        store.outlines = noted  # type: ignore[method-assign]
        loaded = load_slice(store, origin)
        whole = build_graph(store.spans(), whole=False)
    assert set(loaded) == whole.slice_of_answer(origin)
    expected = {origin_of(trace, 1)[:32] for trace in ((90, 10, 20, 91, 11, 21) if joined else (90, 10, 20))}
    assert read == expected


@pytest.mark.parametrize(
    ("content", "writer"),
    [("Rome", ALICE), ("Oslo", BOB), ("Bern", ""), ("", "")],
    ids=["hers", "his", "none", "unknown"],
)
def test_who_says_no_owner_reads_the_record_of_the_one_that_wrote_what_was_read(content: str, writer: str) -> None:
    writers = {
        scope: span(number, 1, OpKind.CREATE, at=1, scope=scope, outputs=[put(HOME, text, action=Action.ADD)])
        for number, scope, text in ((1, ALICE, "Rome"), (2, BOB, "Oslo"))
    }
    spans = [*writers.values(), search(3, put(HOME, content), "")]
    assert version_read(spans, 3) == VersionKey(HOME, writers[writer].origin if writer else "")


def test_what_readers_saw_differently_of_a_version_that_nobody_wrote_has_no_content() -> None:
    spans = [search(1, put(HOME, "Paris")), search(2, seen(HOME)), search(3, put(HOME, "Paris"))]
    growing = GrowingGraph(spans)
    assert growing.graph.content(VersionKey(HOME, "", BOB)) == "Paris"
    spans.append(search(4, put(HOME, "Lyon")))
    growing.extend(spans[-1:])
    for graph in (build_graph(spans), growing.graph):
        assert graph.content(VersionKey(HOME, "", BOB)) == ""


@pytest.mark.parametrize(
    ("reads", "shown"),
    [
        ([put(HOME, "tea", digest="1" * 16), put(HOME, "tea", digest="2" * 16)], "tea"),
        ([put(HOME, "tea", digest="1" * 16), seen(HOME, digest="1" * 16), seen(HOME)], "tea"),
        ([put(HOME, "tea", digest="1" * 16), seen(HOME, digest="2" * 16)], ""),
        ([put(HOME, "tea", digest="1" * 16, size=9), put(HOME, "tea", digest="2" * 16, size=8)], ""),
    ],
    ids=["redacted by two processes", "without contents", "something else", "cut"],
)
def test_two_digests_of_one_text_are_one_thing_seen(reads: list[Variable], shown: str) -> None:
    graph = build_graph(search(number, variable) for number, variable in enumerate(reads, 1))
    assert graph.content(VersionKey(HOME, "", BOB)) == shown
