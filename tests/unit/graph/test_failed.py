"""Writes whose operation ended with an error: they count only when a later operation reads the content."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations
from typing import Any

import pytest

from memtrace_otel.attribution.lineage import Lineage
from memtrace_otel.graph import EdgeType, OperationKey, VersionKey, build_graph
from memtrace_otel.graph.export import to_document
from memtrace_otel.graph.smartcomment import to_smartcomment
from memtrace_otel.model import OperationSpan, Variable
from memtrace_otel.semconv import Action, OpKind, Role
from tests.unit.graph.conftest import ALICE, origin_of, put, seen, span

HOME = "memory:home"
FIRST, FAILED, LAST = (VersionKey(HOME, origin_of(trace, 1)) for trace in (1, 2, 3))
Spans = list[OperationSpan]


def write(trace: int, text: str, action: str = Action.UPDATE, **fields: Any) -> OperationSpan:
    output = put(HOME, text, action=action)
    kind = OpKind.DELETE if action == Action.DELETE else OpKind.UPDATE
    return span(trace, 1, kind, at=10 * trace, scope=ALICE, outputs=[output], **fields)


def read(trace: int, variable: Variable, **fields: Any) -> OperationSpan:
    fields = {"scope": ALICE, "at": 10 * trace} | fields
    return span(trace, 2, OpKind.RETRIEVE, inputs=[replace(variable, role=Role.HIT)], **fields)


def moved(*later: OperationSpan, text: str = "Rome", action: str = Action.UPDATE) -> Spans:
    """Paris is stored, then a write fails."""
    return [write(1, "Paris", Action.ADD), write(2, text, action, status="error"), *later]


def version_read(spans: Spans, trace: int) -> VersionKey:
    (only,) = build_graph(spans).inputs(origin_of(trace, 2))
    return only.version


@pytest.mark.parametrize("variable", [seen(HOME), put(HOME, "Paris")], ids=["blind", "Paris"])
@pytest.mark.parametrize("action", [Action.UPDATE, Action.DELETE])
def test_a_read_after_a_failed_write_sees_the_version_before(variable: Variable, action: str) -> None:
    spans = moved(read(4, variable), action=action)
    graph = build_graph(spans)
    assert version_read(spans, 4) == FIRST
    assert graph.history(HOME) == graph.state(ALICE) == [FIRST]
    assert graph.diff(ALICE, 15 * 10**9) == []
    assert [s.origin for s in graph.writers(HOME)] == [FIRST.origin]


def test_the_next_write_replaces_the_version_before_a_failed_write() -> None:
    graph = build_graph(moved(write(3, "Lisbon")))
    replaced = [(a, b) for a, b, edge in graph.edges(data=True) if edge["type"] == EdgeType.SUPERSEDES]
    assert replaced == [(LAST, FIRST)]
    assert graph.history(HOME) == [FIRST, LAST]


def test_a_failed_write_is_in_the_graph_and_marked() -> None:
    graph = build_graph(moved())
    assert graph.outputs(FAILED.origin) == [FAILED]
    assert graph.versions(HOME) == [FIRST, FAILED]
    assert [graph.has_failed(version) for version in graph.versions(HOME)] == [False, True]
    told = {v["origin"]: (v["number"], v["failed"]) for v in to_document(graph)["versions"]}
    assert told == {FIRST.origin: (1, False), FAILED.origin: (2, True)}
    nodes = to_smartcomment(graph)["data"]["nodes"]
    assert [node["value"] for node in nodes if node["metadata"].get("memtrace_failed")] == ["Rome"]


def test_attribution_ignores_a_failed_write() -> None:
    graph = build_graph(moved())
    assert [version.content for version in Lineage(graph).history(HOME)] == ["Paris"]
    assert Lineage(graph).written_by(moved()[1]) == []


@pytest.mark.parametrize("variable", [seen(HOME, FAILED.origin), put(HOME, "Rome")], ids=["origin", "content"])
def test_a_failed_write_that_is_read_happened(variable: Variable) -> None:
    graph = build_graph(moved(read(4, variable)))
    assert version_read(moved(read(4, variable)), 4) == FAILED
    assert graph.history(HOME) == [FIRST, FAILED]
    assert graph.state(ALICE) == [FAILED]
    assert not graph.has_failed(FAILED)


def test_a_failed_version_named_as_origin_is_the_current_version() -> None:
    spans = moved(read(4, seen(HOME, FAILED.origin)), read(5, seen(HOME)), write(6, "Lisbon"))
    assert version_read(spans, 5) == FAILED
    graph = build_graph(spans)
    assert graph.has_edge(VersionKey(HOME, origin_of(6, 1)), FAILED, key="supersedes")


def test_a_failed_operation_keeps_outputs_that_are_no_records() -> None:
    """An answer that broke off, a fact taken before the model failed: they went where they went."""
    failed = span(1, 1, OpKind.EXTRACT, status="error", outputs=[put("fact:f", "Rome", action=Action.DERIVE)])
    graph = build_graph([failed, span(1, 2, OpKind.DECIDE, parent=1, at=2, inputs=[seen("fact:f")])])
    assert graph.history("fact:f") == [VersionKey("fact:f", failed.origin)]
    assert not graph.has_failed(VersionKey("fact:f", failed.origin))


@pytest.mark.parametrize("order", list(permutations(range(4))), ids=str)
def test_the_order_of_spans_does_not_change_whether_a_write_failed(order: tuple[int, ...]) -> None:
    spans = moved(read(5, seen(HOME)), read(4, seen(HOME, FAILED.origin)))
    graph = build_graph(spans[place] for place in order)
    assert [r.version for r in graph.inputs(origin_of(5, 2))] == [FAILED]
    assert graph.state(ALICE) == [FAILED]
    assert OperationKey(FAILED.origin) in graph
