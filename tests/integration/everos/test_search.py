"""The five search methods: query, candidates with scores, hits in rank order, rounds, waiting messages."""

from __future__ import annotations

import pytest

from memtrace_otel import semconv
from tests.conftest import Recording
from tests.integration.everos.conftest import HAS_ROUNDS, fed, inputs, outputs, recorded
from tests.integration.everos.host import Memory

pytestmark = pytest.mark.usefixtures("instrumented")

METHODS = ["hybrid", "vector", "keyword", "agentic", *(["llm_multiround"] if HAS_ROUNDS else [])]
QUESTION = "Where near the river does Ann live?"


async def told(ann: Memory) -> None:
    await ann.tell("I live in Paris near the river.", "> Nice.")
    await ann.tell("TOPIC I have a dog named Rex.", "> Lovely.")


@pytest.mark.parametrize("method", METHODS)
async def test_returned_records_are_the_recorded_hits(ann: Memory, recording: Recording, method: str) -> None:
    await told(ann)
    recording.clear()
    found = await ann.search(QUESTION, method=method, top_k=1)
    (search,) = recorded(recording).named("search_memory")
    returned = [
        (item["id"].removeprefix(f"{ann.user}_"), item["score"])
        for episode in found["episodes"]
        for item in (episode, *episode["atomic_facts"])
    ]
    assert returned
    assert [(v.ref.removeprefix("memory:"), v.score) for v in inputs(search, "hit")] == returned
    assert all(v.origin and v.digest for v in inputs(search, "hit"))
    assert {v.ref for v in inputs(search, "candidate")}.isdisjoint(v.ref for v in inputs(search, "hit"))
    (context,) = outputs(search, "context")
    assert [v.role for v in fed(search, context)] == ["query", *["hit"] * len(returned)]
    assert search.attributes[semconv.GEN_AI_MEMORY_RECORD_COUNT] == len(returned)
    assert search.attributes[semconv.GEN_AI_MEMORY_STORE_ID] == "store/default/default"
    assert search.attributes[semconv.OP_PURPOSE] == f"search.{method}"
    assert search.attributes[semconv.GEN_AI_RETRIEVAL_TOP_K] == 1


async def test_a_hybrid_search_records_the_candidates_of_its_ranking(ann: Memory, recording: Recording) -> None:
    await told(ann)
    recording.clear()
    await ann.search(QUESTION, top_k=1)
    seen = recorded(recording)
    (search,) = seen.named("search_memory")
    ranking = seen.one("memory_system.hybrid_retrieval")
    ranked = {v.ref for v in inputs(ranking, "candidate")}
    assert {v.ref for v in (*inputs(search, "hit"), *inputs(search, "candidate"))} == ranked
    assert inputs(ranking, "hit")
    steps = [span for span in seen.spans if span.parent_id == search.span_id or span.name.startswith("memtrace.")]
    assert len(steps) == 4  # words, vectors, facts, ranking
    assert {span.scope for span in seen.spans} == {search.scope}


async def test_waiting_messages_are_hits(ann: Memory, recording: Recording) -> None:
    await told(ann)
    await ann.add("By the way, I moved.")
    recording.clear()
    found = await ann.search(QUESTION, filters={"session_id": ann.session})
    assert len(found["unprocessed_messages"]) == 1
    (search,) = recorded(recording).named("search_memory")
    (waiting,) = inputs(search, "hit", "message:")
    assert waiting.ref == f"message:{found['unprocessed_messages'][0]['id']}"


async def test_a_listing_is_a_search_without_a_query(ann: Memory, recording: Recording) -> None:
    await told(ann)
    recording.clear()
    found = await ann.get()
    (listing,) = recorded(recording).named("search_memory")
    assert [f"{ann.user}_{v.ref.removeprefix('memory:')}" for v in inputs(listing, "hit")] == [
        episode["id"] for episode in found["episodes"]
    ]
    assert all(v.origin for v in listing.inputs)
    assert not inputs(listing, "query")
