"""The ranking of a search in Mem0 2.x: entities and their memories, keywords, filters."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import mem0.memory.main as main
import pytest

from memtrace_otel import semconv
from memtrace_otel.model import content_digest
from tests.conftest import Recording
from tests.integration.mem0.conftest import Program, Seen, ids, seen

pytestmark = pytest.mark.usefixtures("instrumented")


def purpose(recording: Recording, name: str) -> list[Seen]:
    return [span for span in seen(recording) if span.attributes.get(semconv.OP_PURPOSE) == name]


@pytest.fixture
def entities(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names as spaCy finds them; the model of spaCy is not installed here."""

    def named(text: str) -> list[tuple[str, str]]:
        return [("PROPER", name) for name in ("Rex", "Paris") if name in text]

    monkeypatch.setattr(main, "extract_entities", named)
    monkeypatch.setattr(main, "extract_entities_batch", lambda texts: [named(text) for text in texts])


@pytest.mark.usefixtures("entities", "content_on")
async def test_entities_of_the_query_boost_their_memories(program: Program, recording: Recording) -> None:
    added = ids(await program.call("add", "My dog is Rex. Rex lives in Paris. I play chess.", user_id="ann"))
    dog, home = (f"memory:{added[text]}" for text in ("My dog is Rex.", "Rex lives in Paris."))
    await program.search("Where is Rex?")
    (search,) = seen(recording, "search_memory")
    (boosts,) = purpose(recording, "entity_boosts")
    assert boosts.parent == search.origin
    assert [item["ref"] for item in boosts.inputs("query")] == [item["ref"] for item in search.inputs("query")]
    assert {item["ref"] for item in boosts.inputs("candidate")} == {dog, home}
    assert all(0 < item["score"] <= 0.5 for item in boosts.inputs("candidate"))
    assert "entity" in search.attributes[semconv.RETRIEVAL_SCORERS]


async def test_a_keyword_search_is_recorded_when_the_store_supports_it(
    program: Program, recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    added = ids(await program.call("add", "I live in Paris. I play chess.", user_id="ann"))
    chess = added["I play chess."]

    def by_words(self: Any, query: str, top_k: int = 5, filters: Any = None) -> list[Any]:
        return [SimpleNamespace(id=chess, score=9.5, payload={"data": "I play chess.", "user_id": "ann"})]

    await program.search("chess")
    assert purpose(recording, "keyword_search") == []  # this store has no index of words
    from memtrace_otel.instrumentation.mem0 import Mem0Instrumentor

    Mem0Instrumentor().uninstrument()
    monkeypatch.setattr(type(program.memory.vector_store), "keyword_search", by_words)
    Mem0Instrumentor().instrument(tracer_provider=recording.provider)
    await program.search("chess")
    (words,) = purpose(recording, "keyword_search")
    (candidate,) = words.inputs("candidate")
    assert (candidate["ref"], candidate["score"]) == (f"memory:{chess}", 9.5)
    assert candidate["origin"]
    search = seen(recording, "search_memory")[-1]
    assert words.parent == search.origin
    assert search.attributes[semconv.RETRIEVAL_SCORERS] == ("semantic", "bm25")


@pytest.mark.parametrize("shown", [False, True])
async def test_filters_are_recorded_as_conditions_with_digests(
    program: Program, recording: Recording, shown: bool, request: pytest.FixtureRequest
) -> None:
    if shown:
        request.getfixturevalue("content_on")
    filters = {"user_id": "ann", "place": "Lisbon", "year": {"gte": 2024}}
    await program.call("search", "Where?", filters=filters)
    (search,) = seen(recording, "search_memory")
    found = [item.partition("=") for item in search.attributes[semconv.RETRIEVAL_FILTERS]]
    assert [name for name, _, _ in found] == ["user_id", "place", "year"]
    values = [value for _, _, value in found]
    assert values[:2] == [content_digest("ann"), "Lisbon" if shown else content_digest("Lisbon")]
    assert "2024" not in values[2]
    assert search.scope
