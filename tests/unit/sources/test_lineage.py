"""Lineage by SQL: the operations behind an answer."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memtrace_otel.model import OperationSpan, Variable
from memtrace_otel.otlp import encode_request
from memtrace_otel.sources import SqliteStore
from memtrace_otel.testing import contract_span

SCOPE = "a" * 16


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    with SqliteStore.open(tmp_path / "a.db") as store:
        yield store


def span(number: int, kind: str, *reads: Variable | tuple[str, OperationSpan], **fields: Any) -> OperationSpan:
    """Return the span of a number, in a trace of the same number unless another is given, started at that second."""
    inputs = tuple(
        given if isinstance(given, Variable) else Variable(given[0], origin=given[1].origin) for given in reads
    )
    fields = {"trace": number, "start": number, "scope": SCOPE, "inputs": inputs} | fields
    return contract_span(fields.pop("trace"), number, fields.pop("start"), kind=kind, **fields)


def wrote(ref: str, action: str = "") -> tuple[Variable, ...]:
    return (Variable(ref, action=action),)


def add(store: SqliteStore, *spans: OperationSpan) -> None:
    for one in spans:
        store.add_request(encode_request([one]))


def test_recorded_origins_are_followed_through_traces(store: SqliteStore) -> None:
    extract = span(1, "extract", Variable("message:1"), outputs=wrote("fact:1"))
    create = span(2, "create", ("fact:1", extract), outputs=wrote("memory:1", "ADD"))
    update = span(3, "update", ("memory:1", create), outputs=wrote("memory:1", "UPDATE"))
    stranger = span(4, "create", Variable("message:2"), outputs=wrote("memory:2", "ADD"))
    retrieve = span(5, "retrieve", ("memory:1", update), outputs=wrote("context:1"))
    answer = span(6, "respond", ("context:1", retrieve), outputs=wrote("answer:1"))
    add(store, answer, retrieve, stranger, update, create, extract)
    backward = store.lineage([answer.origin])
    assert backward == [one.origin for one in (answer, retrieve, update, create, extract)]
    assert store.lineage([answer.origin], most=2) == backward[:2]
    assert store.lineage([f"{9:032x}-{9:016x}", "no origin"]) == []


def test_behind_a_record_no_earlier_answer_is_entered(store: SqliteStore) -> None:
    earlier = span(1, "respond", Variable("query:1"), outputs=wrote("answer:1"))
    create = span(2, "create", ("answer:1", earlier), outputs=wrote("memory:1", "ADD"))
    retrieve = span(3, "retrieve", ("memory:1", create), outputs=wrote("context:1"))
    agent = span(4, "respond", ("context:1", retrieve), outputs=wrote("answer:2"))
    answer = span(5, "respond", ("answer:2", agent), outputs=wrote("answer:3"))
    add(store, earlier, create, retrieve, agent, answer)
    assert store.lineage([answer.origin]) == [one.origin for one in (answer, agent, retrieve, create)]


@pytest.mark.parametrize("scope", [SCOPE, "b" * 16, ""])
def test_a_read_of_an_unknown_origin_leads_to_the_last_writers_before_it(store: SqliteStore, scope: str) -> None:
    writers = [span(number, "update", outputs=wrote("memory:1", "UPDATE"), scope=scope) for number in range(1, 9)]
    late = span(20, "update", outputs=wrote("memory:1", "UPDATE"), scope=scope)
    answer = span(10, "respond", Variable("memory:1"))
    add(store, *writers, late, answer)
    found = store.lineage([answer.origin])
    assert {writers[-1].origin, writers[-2].origin} <= set(found)
    assert late.origin not in found


def test_a_message_means_nothing_in_another_trace(store: SqliteStore) -> None:
    other = span(1, "ingest", outputs=wrote("message:1"))
    own = span(2, "ingest", outputs=wrote("message:1"), trace=3)
    answer = span(3, "respond", Variable("message:1"))
    add(store, other, own, answer)
    assert store.lineage([answer.origin]) == [answer.origin, own.origin]


def test_continuations_and_steps_inside_an_operation_belong_to_it(store: SqliteStore) -> None:
    source = span(1, "extract", outputs=wrote("fact:1"))
    other = span(2, "extract", outputs=wrote("fact:2"))
    outer = span(3, "ingest", Variable("message:1"), outputs=wrote("memory:1", "ADD"))
    plain = span(4, "", trace=3, parent_id=outer.span_id)
    inner = span(5, "create", ("fact:1", source), trace=3, parent_id=plain.span_id, outputs=wrote("memory:1", "ADD"))
    unlike = span(6, "create", ("fact:2", other), trace=3, parent_id=plain.span_id, outputs=wrote("memory:2", "ADD"))
    answer = span(7, "respond")
    rest = span(8, "respond", ("memory:1", outer), trace=7, parent_id=answer.span_id, part=1)
    add(store, source, other, outer, plain, inner, unlike, answer, rest)
    found = store.lineage([answer.origin])
    assert {one.origin for one in (answer, rest, outer, inner, source)} <= set(found)


def test_a_step_without_inputs_worked_on_those_of_the_operation_around_it(store: SqliteStore) -> None:
    source = span(1, "extract", outputs=wrote("fact:1"))
    outer = span(2, "ingest", ("fact:1", source))
    step = span(3, "create", trace=2, parent_id=outer.span_id, outputs=wrote("memory:1", "ADD"))
    answer = span(4, "respond", ("memory:1", step))
    add(store, source, outer, step, answer)
    assert store.lineage([answer.origin]) == [one.origin for one in (answer, step, outer, source)]


def test_origins_that_go_round_end(store: SqliteStore) -> None:
    ring = [contract_span(n, n, n, kind="update", outputs=wrote("memory:1", "UPDATE")) for n in (1, 2, 3)]
    add(store, *(span(n, "update", ("memory:1", ring[n % 3]), outputs=wrote("memory:1")) for n in (1, 2, 3)))
    assert len(store.lineage([ring[0].origin])) == 3


def test_a_wide_operation_takes_little_time(store: SqliteStore) -> None:
    """A document in thousands of pieces, stored at once: the cost does not grow with its square."""
    refs = [f"chunk:{n}" for n in range(5000)]
    ingest = span(1, "ingest", outputs=tuple(Variable(ref, action="ADD") for ref in refs))
    pieces = [
        contract_span(1, n + 10, 2, kind="index", parent_id=ingest.span_id, outputs=wrote(ref, "ADD"))
        for n, ref in enumerate(refs)
    ]
    answer = span(9, "respond", ("chunk:7", ingest), ("chunk:8", pieces[8]))
    store.add_request(encode_request([ingest, *pieces, answer]))
    assert len(store.lineage([answer.origin])) == 5002
