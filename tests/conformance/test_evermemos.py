"""EverMemOS: every row of the list (E1 to E29), by the names of operations and by dependencies."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest

from tests.conformance.conftest import Run
from tests.conformance.edges import count, dependencies, purpose
from tests.conformance.systems.evermemos import EverMemOS, Script

Told = Callable[..., Run]

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
    ("extract_memory", "MU", "event_extraction_prompt"): 2,
    ("extract_memory", "event-log-prompt-template", "event_extraction_prompt"): 2,
    ("extract_memory", "event_extraction_prompt", "raw_event_log_extraction_response"): 2,
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


def test_construction_and_agentic_search(told: Told) -> None:
    operations = CONSTRUCTION | AGENTIC
    graph = told(EverMemOS).graph
    assert count(graph, operations) == operations
    found = dependencies(graph, operations)
    expected = CONSTRUCTION_EDGES | AGENTIC_EDGES
    assert {edge: found[edge] for edge in expected} == expected
    assert [len(graph.history(f"memory:unit-{n}")) for n in (1, 2)] == [4, 4]
    assert len(graph.history("state:message-buffer")) == 10


def test_with_foresight(told: Told) -> None:
    """E10."""
    graph = told(lambda: EverMemOS(foresight=True)).graph
    found = dependencies(graph, CONSTRUCTION)
    chain = ["MU", "foresight_generation_prompt", "raw_foresight_generation_response", "foresight_list", "MU"]
    assert [found["extract_memory", a, b] for a, b in pairwise(chain)] == [2, 2, 2, 2]
    assert found["extract_memory", "foresight-generation-prompt-template", "foresight_generation_prompt"] == 2
    assert [len(graph.history(f"memory:unit-{n}")) for n in (1, 2)] == [5, 5]


@pytest.mark.parametrize(
    ("broken", "operation", "product"),
    [
        ("boundary_detection", "boundary_detection", "boundary_detection_result"),
        ("episode_extraction", "extract_memory", "failed_marker"),
        ("foresight_generation", "extract_memory", "failed_marker"),
        ("event_log_extraction", "extract_memory", "failed_marker"),
        ("sufficiency_check", "agentic_round1_bundle", "sufficiency_check_result"),
        ("multi_query_generation", "agentic_round2_bundle", "refined_queries"),
    ],
)
def test_when_a_model_never_answers(told: Told, broken: str, operation: str, product: str) -> None:
    """E3, E12, and the errors of E25 and E27: five failed tries, then a fallback in place of the reply, with the error.
    The run continues."""
    run = told(lambda: EverMemOS(Script(broken=frozenset({broken})), foresight=broken == "foresight_generation"))
    found = dependencies(run.graph, CONSTRUCTION | AGENTIC)
    prompt = {"event_log_extraction": "event_extraction"}.get(broken, broken) + "_prompt"
    failures = found[operation, prompt, product]
    assert failures > 0
    tried = [span for span in run.graph.operations() if purpose(span) == f"raw_{broken}_response"]
    assert len(tried) == 5 * failures
    assert {(span.status, span.attributes["error.type"]) for span in tried} == {("error", "ModelError")}
    instead = [span for span in run.graph.operations() if purpose(span) == product and "error.type" in span.attributes]
    assert len(instead) == failures
    assert len(run.answers) == 2


@pytest.mark.parametrize(
    ("limit", "options"), [("token_limit", {"hard_tokens": 6}), ("message_limit", {"hard_messages": 0})]
)
def test_when_a_limit_forces_the_end(told: Told, limit: str, options: dict[str, int]) -> None:
    """E6, E7."""
    graph = told(lambda: EverMemOS(**options)).graph
    forced = [span for span in graph.operations() if purpose(span) == "boundary_detection"]
    assert {span.attributes["trigger_type"] for span in forced} == {limit}
    assert {span.attributes["total_messages"] for span in forced} == {1, 2}
    assert {"total_tokens", "hard_token_limit", "hard_message_limit"} <= set(forced[0].attributes)
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
def test_simple_searches(told: Told, mode: str, operation: str, source: str) -> None:
    """E20 to E22."""
    graph = told(lambda: EverMemOS(mode=mode)).graph
    assert count(graph, {operation}) == {operation: 2}
    assert dependencies(graph, {operation})[operation, source, "MU"] == 4
    for span in graph.operations():
        if purpose(span) == operation:
            assert [read.score is not None for read in graph.inputs(span.origin) if read.role == "hit"] == [True, True]


def test_with_a_single_refined_query(told: Told) -> None:
    """E28; without a reply the question itself is searched again."""
    graph = told(lambda: EverMemOS(multi_query=False)).graph
    found = dependencies(graph, AGENTIC)
    chain = ["refined_query_docs_text", "refined_query_prompt", "raw_refined_query_response", "refined_queries"]
    assert [found["agentic_round2_bundle", a, b] for a, b in pairwise(chain)] == [1, 1, 1]
    assert found["agentic_round2_bundle", "refined_query_prompt_template", "refined_query_prompt"] == 1
    assert found["agentic_round2_bundle", "refined_queries", "refined_query"] == 1


def test_without_a_single_refined_query(told: Told) -> None:
    graph = told(lambda: EverMemOS(Script(broken=frozenset({"refined_query"})), multi_query=False)).graph
    found = dependencies(graph, AGENTIC)
    assert found["agentic_round2_bundle", "refined_query_prompt", "refined_queries"] == 1
    assert found["agentic_round2_bundle", "refined_query", "sparse_retrieval_results"] == 1
    [refined] = [span for span in graph.operations() if purpose(span) == "refined_query"]
    [query] = graph.outputs(refined.origin)
    assert graph.content(query) == "Where does Ann live?"


@pytest.mark.parametrize("empty", ["sparse", "dense"])
def test_a_hybrid_search_with_one_list_empty(told: Told, empty: str) -> None:
    """E23."""
    graph = told(lambda: EverMemOS(Script(empty=frozenset({empty})), mode="hybrid")).graph
    found = dependencies(graph, {"hybrid_retrieval"})
    for name in ("sparse", "dense"):
        assert found["hybrid_retrieval", "query", f"{name}_retrieval_results"] == 2
        assert found["hybrid_retrieval", f"{name}_retrieval_results", "hybrid_retrieval_results"] == 2
    assert found["hybrid_retrieval", "hybrid_retrieval_results", "MU"] == 4
    for span in graph.operations():
        if purpose(span).endswith("e_retrieval_results"):
            looked_at = [read for read in graph.inputs(span.origin) if read.role == "candidate"]
            assert len(looked_at) == (0 if purpose(span).startswith(empty) else 2)


def test_an_agentic_search_that_finds_nothing(told: Told) -> None:
    """E26: no model is asked."""
    found = dependencies(told(EverMemOS, []).graph, AGENTIC)
    assert found["agentic_round1_bundle", "hybrid_retrieval_results", "agentic_retrieval_results"] == 2
    assert not any("sufficiency" in source for _, source, _ in found)


@pytest.mark.parametrize(
    ("options", "operation", "attributes"),
    [
        ({}, "boundary_detection", "smart_mask_flag llm_model"),
        ({}, "extract_memory", "llm_model foresight_enabled event_log_enabled"),
        ({"mode": "lexical"}, "bm25_retrieval", "mode top_k"),
        ({"mode": "vector"}, "embedding_retrieval", "mode top_k embedding_model"),
        ({"mode": "hybrid"}, "hybrid_retrieval", "mode top_k embedding_model rrf_k"),
        ({}, "agentic_round1_bundle", "round retrieval_mode top_k sufficiency_check_docs use_reranker"),
        ({}, "agentic_round2_bundle", "round retrieval_mode top_k multi_query"),
        ({}, "agentic_final_rerank", "top_k use_reranker"),
    ],
)
def test_settings_are_attributes(told: Told, options: dict[str, str], operation: str, attributes: str) -> None:
    graph = told(lambda: EverMemOS(**options)).graph
    spans = [span for span in graph.operations() if purpose(span) == operation]
    assert spans
    assert all(set(attributes.split()) <= set(span.attributes) for span in spans)
