"""The life of one fact as a tree."""

from __future__ import annotations

from memtrace_otel.graph import VersionKey, build_graph
from memtrace_otel.graph.tree import PREVIEW, FactStep, fact_path
from memtrace_otel.model import OperationSpan
from memtrace_otel.semconv import Action, OpKind, Role
from tests.unit.graph.conftest import ALICE, origin_of, put, seen, span


def drawn(steps: list[FactStep] | tuple[FactStep, ...], depth: int = 0) -> list[str]:
    """The tree as indented lines."""
    lines: list[str] = []
    for step in steps:
        action = f" {step.action}" if step.action else ""
        lines += [f"{'  ' * depth}{step.kind}{action} {step.text}".rstrip(), *drawn(step.children, depth + 1)]
    return lines


LIFE = [
    "message I live in Paris",
    "  derived I LIVE IN PARIS",
    "    written ADD Lives in Paris",
    "message I moved to Lisbon",
    "  derived I MOVED TO LISBON",
    "    written UPDATE Lives in Lisbon",
    "      retrieved query:q1?",
    "        answered Paris",
    "          judged incorrect",
]


def test_from_the_message_to_the_judgement(story: list[OperationSpan]) -> None:
    graph = build_graph(story)
    assert drawn(fact_path(graph, VersionKey("memory:home", origin_of(1, 3)))) == LIFE
    assert drawn(fact_path(graph, origin_of(2, 3))) == LIFE


def test_a_fact_that_was_never_stored_ends_where_it_was_lost(story: list[OperationSpan]) -> None:
    graph = build_graph([s for s in story if s.origin != origin_of(1, 3)])
    assert drawn(fact_path(graph, origin_of(1, 2))) == ["message I live in Paris", "  written I LIVE IN PARIS"]


def test_a_deletion_ends_the_life(story: list[OperationSpan]) -> None:
    gone = span(
        8, 1, OpKind.DELETE, at=90, scope=ALICE,
        inputs=[seen("memory:home", origin_of(2, 3), role=Role.PREVIOUS)],
        outputs=[put("memory:home", action=Action.DELETE)],
    )  # fmt: skip
    lines = drawn(fact_path(build_graph([*story, gone]), gone.origin))
    assert lines[: len(LIFE)] == LIFE
    assert lines[len(LIFE) :] == ["deleted DELETE"]


def test_a_version_nobody_is_known_to_have_written_is_shown_as_unknown() -> None:
    find = span(1, 1, OpKind.RETRIEVE, scope=ALICE, inputs=[put("memory:r", "found", role=Role.HIT)])
    assert drawn(fact_path(build_graph([find]), VersionKey("memory:r", "", ALICE))) == ["unknown found", "  retrieved"]


def test_contents_are_one_short_line() -> None:
    long = span(1, 1, OpKind.CREATE, scope=ALICE, outputs=[put("memory:r", "word\n" * 100, action=Action.ADD)])
    (step,) = fact_path(build_graph([long]), long.origin)
    assert len(step.text) == PREVIEW
    assert "\n" not in step.text


def test_a_life_of_thousands_of_changes_does_not_overflow() -> None:
    changes = [
        span(
            n, 1, OpKind.UPDATE, at=n * 2, scope=ALICE,
            inputs=[seen("memory:r", origin_of(n - 1, 1), role=Role.PREVIOUS)] if n > 1 else [],
            outputs=[put("memory:r", str(n), action=Action.UPDATE)],
        )
        for n in range(1, 3001)
    ]  # fmt: skip
    assert len(fact_path(build_graph(changes), origin_of(1, 1))) == 3000


def test_what_is_not_there_has_no_path(story: list[OperationSpan]) -> None:
    graph = build_graph(story)
    assert fact_path(graph, "?") == []
    assert fact_path(graph, VersionKey("memory:x", "", ALICE)) == []
    assert fact_path(graph, origin_of(1, 1)) == []
