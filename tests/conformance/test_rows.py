"""Every row of the conformance list appears as spans, by the name of its operation and by its dependencies.

Mem0's rows are asserted on the real package (tests/integration/mem0/test_conformance.py); the other systems are small
ones of our own, instrumented by hand with the context manager.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from memtrace_otel.graph import VersionKey
from memtrace_otel.model import ref_kind
from tests.conformance.conftest import Run
from tests.conformance.conversation import LONG
from tests.conformance.edges import count, dependencies, purpose
from tests.conformance.systems import answering
from tests.conformance.systems.evermemos import EverMemOS, Script
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


def test_answers_and_judgements(told: Told, system: Any) -> None:
    run = told(system)
    found = dependencies(run.graph, EVALUATION)
    assert {edge: found[edge] for edge in COMMON} == COMMON
    assert count(run.graph, EVALUATION) == EVALUATION


def test_every_operation_is_in_its_session(told: Told, system: Any) -> None:
    """C5: a session is a trace whose root names it."""
    run = told(system)
    sessions = {span.trace_id: span.attributes["session.id"] for span in run.spans if not span.parent_id}
    seen = [sessions[span.trace_id] for span in run.graph.operations()]
    waiting = ["finalization"] if "finalization" in seen else []  # Long-Context has nothing to flush
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


CONSTRUCTION = {
    "message_buffer_update": 9,
    "boundary_detection": 6,
    "finalize_memory_unit": 2,
    "extract_memory": 2,
}
CONSTRUCTION_EDGES = {
    ("message_buffer_update", "message", "message-buffer"): 7,
    ("message_buffer_update", "message-buffer", "message-buffer"): 9,
    ("boundary_detection", "message-buffer", "new_messages"): 6,
    ("boundary_detection", "message-buffer", "history_messages"): 6,
    ("boundary_detection", "new_messages", "time_gap"): 6,
    ("boundary_detection", "history_messages", "time_gap"): 6,
    ("boundary_detection", "new_messages", "boundary_detection_prompt"): 6,
    ("boundary_detection", "history_messages", "boundary_detection_prompt"): 6,
    ("boundary_detection", "time_gap", "boundary_detection_prompt"): 6,
    ("boundary_detection", "boundary-detection-prompt-template", "boundary_detection_prompt"): 6,
    ("boundary_detection", "boundary_detection_prompt", "raw_boundary_detection_response"): 6,
    ("boundary_detection", "raw_boundary_detection_response", "boundary_detection_result"): 6,
    ("boundary_detection", "boundary_detection_result", "no_split_marker"): 5,
    ("boundary_detection", "message-buffer", "temporary_variable"): 1,
    ("boundary_detection", "boundary_detection_result", "temporary_variable"): 1,
    ("finalize_memory_unit", "temporary_variable", "MU"): 1,
    ("finalize_memory_unit", "message-buffer", "MU"): 1,
    ("extract_memory", "MU", "episode_extraction_prompt"): 2,
    ("extract_memory", "episode-extraction-prompt-template", "episode_extraction_prompt"): 2,
    ("extract_memory", "episode-extraction-custom-instructions", "episode_extraction_prompt"): 2,
    ("extract_memory", "episode_extraction_prompt", "raw_episode_extraction_response"): 2,
    ("extract_memory", "raw_episode_extraction_response", "episode_memory"): 2,
    ("extract_memory", "episode_memory", "MU"): 2,
    ("extract_memory", "MU", "event_log_extraction_prompt"): 2,
    ("extract_memory", "event-log-extraction-prompt-template", "event_log_extraction_prompt"): 2,
    ("extract_memory", "event_log_extraction_prompt", "raw_event_log_extraction_response"): 2,
    ("extract_memory", "raw_event_log_extraction_response", "event_log"): 2,
    ("extract_memory", "event_log", "MU"): 2,
    ("extract_memory", "MU", "MU"): 6,
}
AGENTIC = {"agentic_round1_bundle": 2, "agentic_round2_bundle": 1, "agentic_final_rerank": 1}
FIRST, SECOND, FINAL = AGENTIC
AGENTIC_EDGES = {
    (FIRST, "query", "sparse_retrieval_results"): 2,
    (FIRST, "query", "dense_retrieval_results"): 2,
    (FIRST, "sparse_retrieval_results", "hybrid_retrieval_results"): 2,
    (FIRST, "dense_retrieval_results", "hybrid_retrieval_results"): 2,
    (FIRST, "hybrid_retrieval_results", "reranked_round1_results"): 2,
    (FIRST, "reranked_round1_results", "reranked_for_check"): 2,
    (FIRST, "reranked_for_check", "sufficiency_check_docs_text"): 2,
    (FIRST, "query", "sufficiency_check_prompt"): 2,
    (FIRST, "sufficiency_check_docs_text", "sufficiency_check_prompt"): 2,
    (FIRST, "sufficiency-check-prompt-template", "sufficiency_check_prompt"): 2,
    (FIRST, "sufficiency_check_prompt", "raw_sufficiency_check_response"): 2,
    (FIRST, "raw_sufficiency_check_response", "sufficiency_check_result"): 2,
    (FIRST, "sufficiency_check_result", "MU"): 2,
    (FIRST, "reranked_round1_results", "MU"): 2,
    (SECOND, "reranked_for_check", "multi_query_docs_text"): 1,
    (SECOND, "query", "multi_query_generation_prompt"): 1,
    (SECOND, "sufficiency_check_result", "multi_query_generation_prompt"): 1,
    (SECOND, "multi_query_docs_text", "multi_query_generation_prompt"): 1,
    (SECOND, "multi-query-generation-template", "multi_query_generation_prompt"): 1,
    (SECOND, "multi_query_generation_prompt", "raw_multi_query_generation_response"): 1,
    (SECOND, "raw_multi_query_generation_response", "refined_queries"): 1,
    (SECOND, "refined_queries", "refined_query"): 3,
    (SECOND, "refined_query", "sparse_retrieval_results"): 3,
    (SECOND, "refined_query", "dense_retrieval_results"): 3,
    (SECOND, "sparse_retrieval_results", "hybrid_retrieval_results"): 3,
    (SECOND, "dense_retrieval_results", "hybrid_retrieval_results"): 3,
    (SECOND, "hybrid_retrieval_results", "round2_retrieval_results"): 3,
    (FINAL, "reranked_round1_results", "combined_retrieval_results"): 1,
    (FINAL, "round2_retrieval_results", "combined_retrieval_results"): 1,
    (FINAL, "combined_retrieval_results", "final_reranked_results"): 1,
    (FINAL, "final_reranked_results", "MU"): 2,
}


def test_evermemos(told: Told) -> None:
    operations = CONSTRUCTION | AGENTIC
    graph = told(EverMemOS).graph
    assert count(graph, operations) == operations
    found = dependencies(graph, operations)
    expected = CONSTRUCTION_EDGES | AGENTIC_EDGES
    assert {edge: found[edge] for edge in expected} == expected
    assert [len(graph.history(f"memory:unit-{n}")) for n in (1, 2)] == [4, 4]
    assert len(graph.history("state:message-buffer")) == 10


def test_evermemos_with_foresight(told: Told) -> None:
    """E10."""
    graph = told(lambda: EverMemOS(foresight=True)).graph
    found = dependencies(graph, CONSTRUCTION)
    chain = ["MU", "foresight_generation_prompt", "raw_foresight_generation_response", "foresight_list", "MU"]
    assert [found["extract_memory", a, b] for a, b in pairwise(chain)] == [2, 2, 2, 2]
    assert found["extract_memory", "foresight-generation-prompt-template", "foresight_generation_prompt"] == 2
    assert [len(graph.history(f"memory:unit-{n}")) for n in (1, 2)] == [5, 5]


@pytest.mark.parametrize(
    ("broken", "operation", "prompt"),
    [
        ("boundary_detection", "boundary_detection", "boundary_detection_prompt"),
        ("episode_extraction", "extract_memory", "episode_extraction_prompt"),
        ("event_log_extraction", "extract_memory", "event_log_extraction_prompt"),
        ("sufficiency_check", "agentic_round1_bundle", "sufficiency_check_prompt"),
        ("multi_query_generation", "agentic_round2_bundle", "multi_query_generation_prompt"),
    ],
)
def test_evermemos_when_a_model_never_answers(told: Told, broken: str, operation: str, prompt: str) -> None:
    """E3, E12, and the errors of E25 and E27: five tries that failed, then a marker; the run goes on."""
    run = told(lambda: EverMemOS(Script(broken=frozenset({broken}))))
    found = dependencies(run.graph, CONSTRUCTION | AGENTIC)
    assert found[operation, prompt, "failed_marker"] > 0
    tried = [span for span in run.graph.operations() if purpose(span) == f"raw_{broken}_response"]
    assert len(tried) == 5 * found[operation, prompt, "failed_marker"]
    assert {(span.status, span.attributes["error.type"]) for span in tried} == {("error", "ModelError")}
    assert len(run.answers) == 2


def test_evermemos_when_a_limit_forces_the_end(told: Told) -> None:
    """E6, E7."""
    graph = told(lambda: EverMemOS(hard_tokens=6)).graph
    forced = [span for span in graph.operations() if purpose(span) == "boundary_detection"]
    assert all(span.attributes["trigger_type"] == "token_limit" for span in forced)
    found = dependencies(graph, CONSTRUCTION)
    assert found["boundary_detection", "message-buffer", "temporary_variable"] > 0
    assert found["boundary_detection", "message-buffer", "no_split_marker"] > 0
    assert not any(source.endswith("_prompt") for operation, source, _ in found if operation == "boundary_detection")


@pytest.mark.parametrize(
    ("mode", "operation", "source"),
    [
        ("lexical", "bm25_retrieval", "query"),
        ("vector", "embedding_retrieval", "query"),
        ("hybrid", "hybrid_retrieval", "hybrid_retrieval_results"),
    ],
)
def test_evermemos_simple_searches(told: Told, mode: str, operation: str, source: str) -> None:
    """E20 to E22."""
    graph = told(lambda: EverMemOS(mode=mode)).graph
    assert count(graph, {operation}) == {operation: 2}
    assert dependencies(graph, {operation})[operation, source, "MU"] == 4
    for span in graph.operations():
        if purpose(span) == operation:
            assert [read.score is not None for read in graph.inputs(span.origin) if read.role == "hit"] == [True, True]


def test_evermemos_with_a_single_refined_query(told: Told) -> None:
    """E28, and what happens when it never comes: the question itself is searched again."""
    graph = told(lambda: EverMemOS(multi_query=False)).graph
    found = dependencies(graph, AGENTIC)
    chain = ["refined_query_docs_text", "refined_query_prompt", "raw_refined_query_response", "refined_queries"]
    assert [found["agentic_round2_bundle", a, b] for a, b in pairwise(chain)] == [1, 1, 1]
    assert found["agentic_round2_bundle", "refined_queries", "refined_query"] == 1


def test_evermemos_without_a_single_refined_query(told: Told) -> None:
    graph = told(lambda: EverMemOS(Script(broken=frozenset({"refined_query"})), multi_query=False)).graph
    found = dependencies(graph, AGENTIC)
    assert found["agentic_round2_bundle", "refined_query_prompt", "failed_marker"] == 1
    assert found["agentic_round2_bundle", "query", "sparse_retrieval_results"] == 1


@pytest.mark.parametrize("mode", ["agentic", "lexical", "hybrid"])
def test_a_search_that_finds_nothing_is_there(told: Told, mode: str) -> None:
    """C6, E23, E26: the answer has an empty context, and the search is an operation like any other."""
    run = told(lambda: EverMemOS(mode=mode), [])
    searches = [span for span in run.graph.operations() if span.name == "search_memory"]
    assert len(searches) == 2
    assert not any(read.role == "hit" for span in searches for read in run.graph.inputs(span.origin))
    found = dependencies(run.graph, EVALUATION)
    assert found["question-answering", "context", "prediction"] == 2


def test_other_templates_are_told_apart(told: Told, monkeypatch: pytest.MonkeyPatch) -> None:
    """C7."""
    monkeypatch.setattr(answering, "TEMPLATE", root("prompt", "Answer shortly.", "realmem-question-answering"))
    monkeypatch.setattr(answering, "JUDGE", root("prompt", "Give a score.", "realmem-lm-score"))
    found = dependencies(told(NaiveRAG).graph, EVALUATION)
    assert found["question-answering", "realmem-question-answering", "prediction"] == 2
    assert found["llm-judge", "realmem-lm-score", "judge_response"] == 2


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
