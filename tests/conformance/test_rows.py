"""Every row of the conformance list appears as spans, by the name of its operation and by its dependencies.

Mem0's rows are asserted on the real package (tests/integration/mem0/test_conformance.py); the other systems are small
ones of our own, instrumented by hand with the context manager. EverMemOS has a file of its own, test_evermemos.py.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from memtrace_otel.graph import VersionKey
from memtrace_otel.model import ref_kind
from tests.conformance.conftest import Run
from tests.conformance.conversation import LONG, MESSAGES, QUESTIONS, Message
from tests.conformance.edges import count, dependencies, purpose
from tests.conformance.systems import answering
from tests.conformance.systems.evermemos import EverMemOS
from tests.conformance.systems.long_context import LongContext
from tests.conformance.systems.naive_rag import NaiveRAG
from tests.conformance.systems.tracing import root

SYSTEMS = {"Long-Context": LongContext, "NaiveRAG": NaiveRAG, "EverMemOS": EverMemOS}
COMMON = {
    ("question-answering", "query", "prediction"): 2,
    ("question-answering", "context", "prediction"): 2,
    ("question-answering", "question-answering-prompt", "prediction"): 2,
    ("llm-judge", "query", "judge_response"): 2,
    ("llm-judge", "golden_answers", "judge_response"): 2,
    ("llm-judge", "judge_prompt", "judge_response"): 2,
    ("llm-judge", "prediction", "judge_response"): 2,
    ("llm-judge", "judge_response", "judge_score"): 2,
}
EVALUATION = {"question-answering": 2, "llm-judge": 2}
Told = Callable[..., Run]


@pytest.fixture(params=SYSTEMS)
def system(request: pytest.FixtureRequest) -> Any:
    return SYSTEMS[request.param]


def test_messages_and_queries(told: Told, system: Any) -> None:
    """C1, C2: one root each, with the id of the dataset, speaker, text and time."""
    graph = told(system).graph
    roots = {v.ref: graph.content(v) for v in graph if isinstance(v, VersionKey) and not v.origin}
    said = {f"message:{message.id}": message.line for message in MESSAGES}
    asked = {f"query:{question.id}": question.text for question in QUESTIONS}
    assert {ref: text for ref, text in roots.items() if ref_kind(ref) in ("message", "query")} == said | asked
    assert said["message:m1"] == "[2024-03-01 10:00] Ann: I live in Paris."


def test_answers_and_judgements(told: Told, system: Any) -> None:
    """C3, C4."""
    run = told(system)
    graph = run.graph
    found = dependencies(graph, EVALUATION)
    assert {edge: found[edge] for edge in COMMON} == COMMON
    assert found["question-answering", "MU", "context"] == {LongContext: 2, NaiveRAG: 6, EverMemOS: 4}[system]
    assert count(graph, EVALUATION) == EVALUATION
    scores = [graph.outputs(origin) for origin in run.scores]
    assert [graph.content(score) for [score] in scores] == ["1.0", "1.0"]


def test_without_memories_a_placeholder_is_the_context(told: Told, system: Any) -> None:
    """C6: the answer has a context all the same, and the search is an operation like any other."""
    graph = told(system, []).graph
    searches = [span for span in graph.operations() if span.name == "search_memory"]
    assert len(searches) == 2
    if system is LongContext:
        return  # the only text is found, although the text is empty
    assert not any(read.role == "hit" for span in searches for read in graph.inputs(span.origin))
    contexts = [v for v in graph if isinstance(v, VersionKey) and ref_kind(v.ref) == "context"]
    found = [context for span in searches for context in graph.outputs(span.origin)]
    assert [graph.content(context) for context in found] == ["", ""]
    assert [graph.content(v) for v in contexts if v not in found] == ["[NO RETRIEVED MEMORIES]"] * 2
    assert dependencies(graph, EVALUATION)["question-answering", "context", "prediction"] == 2


@pytest.mark.parametrize("mode", ["lexical", "vector", "hybrid"])
def test_a_simple_search_that_finds_nothing_is_there(told: Told, mode: str) -> None:
    graph = told(lambda: EverMemOS(mode=mode), []).graph
    searches = [span for span in graph.operations() if span.name == "search_memory"]
    assert len(searches) == 2
    assert not any(read.role == "hit" for span in searches for read in graph.inputs(span.origin))


def test_every_operation_is_in_its_session(told: Told, system: Any) -> None:
    """C5: a session is a trace, and the root names the session."""
    run = told(system)
    roots = [span for span in run.spans if not span.parent_id]
    assert [span.name for span in roots] == [
        "setup",
        *["memory_construction"] * 3,
        "memory_search",
        "memory_evaluation",
    ]
    sessions = {span.trace_id: span.attributes["session.id"] for span in roots}
    seen = [sessions[span.trace_id] for span in run.graph.operations()]
    waiting = ["finalization"] if "finalization" in seen else []  # Long-Context has no flush
    assert list(dict.fromkeys(seen)) == ["setup", "s1", "s2", *waiting, "search", "evaluation"]


def test_long_context(told: Told) -> None:
    operations = {"memory_update": 7, "retrieve": 2}
    graph = told(LongContext).graph
    assert count(graph, operations) == operations
    found = dependencies(graph, operations)
    assert found["memory_update", "message", "MU"] == 7
    assert found["memory_update", "MU", "MU"] == 7
    assert found["retrieve", "query", "MU"] == 2
    assert len(graph.history("memory:memory-unit")) == 8
    for span in graph.operations():
        if purpose(span) == "memory_update":
            assert {"context_window", "message_separator", "llm_model_for_tokenizer"} <= set(span.attributes)
        assert purpose(span) != "retrieve" or span.attributes["top_k"] == 3


def test_lines_that_long_context_drops_are_deleted(told: Told) -> None:
    """Beyond the list."""
    graph = told(LongContext).graph
    lines = [graph.history(f"state:line-m{n}") for n in range(1, 8)]
    assert [len(line) for line in lines] == [2, 2, 1, 1, 1, 1, 1]
    assert [graph.is_tombstone(line[-1]) for line in lines] == [True, True, False, False, False, False, False]
    assert "Paris" not in graph.content(graph.history("memory:memory-unit")[-1])


def test_naive_rag(told: Told) -> None:
    operations = {"message_buffer_update": 8, "add": 4, "retrieve": 2}
    graph = told(NaiveRAG).graph
    assert count(graph, operations) == operations
    found = dependencies(graph, operations)
    assert found["message_buffer_update", "message", "message-buffer"] == 7
    assert found["message_buffer_update", "message", "temporary_variable"] == 3
    assert found["message_buffer_update", "message-buffer", "message-buffer"] == 8
    assert found["message_buffer_update", "message-buffer", "temporary_variable"] == 4
    assert found["add", "temporary_variable", "MU"] == 4
    assert found["retrieve", "query", "MU"] == 6
    for span in graph.operations():
        if purpose(span) == "message_buffer_update":
            names = {"deferred", "max_tokens", "num_overlap_msgs", "message_separator", "llm_model_for_tokenizer"}
            assert names <= set(span.attributes)
        if purpose(span) == "retrieve":
            assert {"top_k", "embedding_model"} <= set(span.attributes)
            scores = [read.score or 0.0 for read in graph.inputs(span.origin) if read.role == "hit"]
            assert scores == sorted(scores, reverse=True)
            assert scores[0] > 0


def test_other_templates_are_told_apart(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """C7."""
    monkeypatch.setattr(answering, "TEMPLATE", root("prompt", "Answer shortly.", "realmem-question-answering"))
    monkeypatch.setattr(answering, "JUDGE", root("prompt", "Give a score.", "realmem-lm-score"))
    found = dependencies(told(NaiveRAG).graph, EVALUATION)
    assert found["question-answering", "realmem-question-answering", "prediction"] == 2
    assert found["llm-judge", "realmem-lm-score", "judge_response"] == 2


def test_a_question_and_a_later_message_share_an_id(told: Told) -> None:
    """C7: they stay two variables."""
    later = Message("q1", "I live in Porto now.", MESSAGES[-1].time, "s2")
    run = told(NaiveRAG, [*MESSAGES, later])
    found = {v.ref: run.graph.content(v) for v in run.graph if isinstance(v, VersionKey) and v.ref.endswith(":q1")}
    assert found["message:q1"].endswith("I live in Porto now.")
    assert found["query:q1"] == "Where does Ann live?"


def test_a_slice_holds_its_own_question(told: Told, system: Any) -> None:
    run = told(system)
    for origin, question in zip(run.answers, ("query:q1", "query:q2"), strict=True):
        nodes = run.graph.slice_of_answer(origin)
        asked = {node.ref for node in nodes if isinstance(node, VersionKey) and ref_kind(node.ref) == "query"}
        assert asked == {question}


def test_a_slice_of_a_score_holds_one_question_and_one_answer(told: Told, system: Any) -> None:
    run = told(system)
    for origin in run.scores:
        [score] = run.graph.outputs(origin)
        above = [node for node in run.graph.ancestors(score) if isinstance(node, VersionKey)]
        assert [len([n for n in above if ref_kind(n.ref) == kind]) for kind in ("query", "answer")] == [1, 1]


@pytest.mark.parametrize("messages", [None, LONG], ids=["short", "long"])
def test_no_memory_has_a_later_ancestor_or_a_question_above_it(told: Told, system: Any, messages: Any) -> None:
    run = told(system) if messages is None else told(system, messages)
    graph = run.graph
    versions = [v for span in graph.operations() for v in graph.outputs(span.origin) if ref_kind(v.ref) == "memory"]
    assert versions
    for version in versions:
        written = graph.operation(version.origin)
        assert written is not None
        for ancestor in graph.ancestors(version):
            assert ref_kind(getattr(ancestor, "ref", "")) != "query"
            made = graph.operation(ancestor.origin) if ancestor.origin else None
            assert made is None or made.start <= written.end
