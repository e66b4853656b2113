"""Rounds of retrieval that a model decides about (EverOS 1.3 and later)."""

from __future__ import annotations

import pytest

from memtrace_otel import semconv
from tests.conftest import Recording
from tests.integration.everos.conftest import Recorded, inputs, outputs, recorded
from tests.integration.everos.host import Memory
from tests.integration.everos.models import EverosModels

pytestmark = pytest.mark.usefixtures("instrumented", "content_on")


async def searched(ann: Memory, recording: Recording) -> Recorded:
    await ann.tell("I live in Paris near the river.", "> Nice.")
    await ann.tell("TOPIC I have a dog named Rex.", "> Lovely.")
    recording.clear()
    await ann.search("Where near the river does Ann live?", method="llm_multiround")
    return recorded(recording)


async def test_a_round_searches_the_queries_of_the_round_before(ann: Memory, recording: Recording) -> None:
    seen = await searched(ann, recording)
    (search,) = seen.named("search_memory")
    (query,) = inputs(search, "query")
    first, second = seen.all("llm_multiround")
    assert [v.ref for v in inputs(first, "query")] == [v.ref for v in inputs(second, "query")] == [query.ref]
    refined = outputs(first, "fact")[-1]
    assert refined.content == "What about the garden?"
    asked = [v for span in seen.all("memory_system.bm25_retrieval") for v in inputs(span, "query")]
    assert [(v.ref, v.origin) for v in asked] == [(query.ref, ""), (refined.ref, first.origin)]
    shown = [v.ref for v in inputs(first, "candidate")]
    assert shown == [v.ref for v in inputs(seen.all("memory_system.hybrid_retrieval")[0], "hit")]
    assert shown[0] in outputs(first, "fact")[0].content  # the chosen memory


async def test_a_fallback_decision_is_recorded(ann: Memory, models: EverosModels, recording: Recording) -> None:
    models.by_kind["round"] = ["no JSON"] * 9
    seen = await searched(ann, recording)
    (only,) = seen.all("llm_multiround")
    assert "unparsed" in only.incomplete
    events = [event.name for event in only.events]
    assert events == [*[semconv.RETRY_EVENT] * (len(events) - 1), semconv.FALLBACK_EVENT]
    assert len(events) > 1
