"""The life of one fact as a tree."""

from __future__ import annotations

from dataclasses import replace

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


def test_only_the_searches_of_one_answer(story: list[OperationSpan]) -> None:
    graph = build_graph(story)
    (tea,) = graph.history("memory:tea")
    both = drawn(fact_path(graph, tea))
    assert [line.strip() for line in both if "retrieved" in line] == ["retrieved query:q1?", "retrieved query:q2?"]
    one = drawn(fact_path(graph, tea, answer=origin_of(5, 1)))
    assert [line.strip() for line in one if "retrieved" in line] == ["retrieved query:q2?"]


def test_background_is_no_source_and_a_search_while_writing_is_not_shown(story: list[OperationSpan]) -> None:
    spans = [s for s in story if s.origin != origin_of(3, 2)] + [
        span(
            3, 2, OpKind.EXTRACT, parent=1, at=41, scope=ALICE,
            inputs=[
                put("message:m1", "I live in Paris", role=Role.HISTORY),
                put("message:m3", "I like tea", role=Role.MESSAGE),
            ],
            outputs=[put("fact:tea", "I LIKE TEA", action=Action.DERIVE)],
        ),
        span(9, 1, OpKind.INGEST, at=60, lasts=9, scope=ALICE),
        span(9, 2, OpKind.RETRIEVE, parent=1, at=61, inputs=[seen("memory:tea", origin_of(3, 3), role=Role.HIT)]),
    ]  # fmt: skip
    lines = drawn(fact_path(build_graph(spans), origin_of(3, 3)))
    assert lines[:3] == ["message I like tea", "  derived I LIKE TEA", "    written ADD Likes tea"]
    assert sum("retrieved" in line for line in lines) == 2


def test_messages_of_one_call_stay_in_order() -> None:
    turns = [put(f"message:{name}", text, role=Role.MESSAGE) for name, text in (("z", "asked"), ("a", "replied"))]
    step = span(
        1, 1, OpKind.INGEST, scope=ALICE, inputs=turns, outputs=[put("memory:r", "fact", action=Action.ADD)]
    )  # fmt: skip
    lines = drawn(fact_path(build_graph([step]), step.origin))
    assert lines == ["message asked", "  written ADD fact", "message replied"]


def test_an_answer_that_read_a_record_and_its_context_is_shown_once(story: list[OperationSpan]) -> None:
    answer = next(s for s in story if s.origin == origin_of(5, 1))
    direct = replace(answer, inputs=(*answer.inputs, seen("memory:tea", origin_of(3, 3), role=Role.CONTEXT)))
    graph = build_graph([direct, *(s for s in story if s is not answer)])
    lines = drawn(fact_path(graph, origin_of(3, 3), answer=answer.origin))
    assert sum("answered" in line for line in lines) == 1


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
