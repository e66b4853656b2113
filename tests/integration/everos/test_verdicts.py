"""Wrong answers of a real EverOS, one planted fault each: the verdict names the decisive operation."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import openai
import pytest

from memtrace_otel import semconv
from memtrace_otel.attribution import attribute_trace
from memtrace_otel.capture import feedback
from memtrace_otel.instrumentation.openai import OpenAIInstrumentor
from memtrace_otel.model import Verdict
from tests.conftest import Recording
from tests.integration.everos.conftest import recorded
from tests.integration.everos.host import Everos, Memory
from tests.integration.everos.models import EverosModels

pytestmark = pytest.mark.usefixtures("instrumented", "content_on")

TOLD = ("I live in Lisbon near the river.", "> Nice.", "TOPIC I have a dog.")


@pytest.fixture(scope="module")
def everos(models: EverosModels, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Everos]:
    """Without profiles: a profile can hold the fact that an episode lacks."""
    with Everos(tmp_path_factory.mktemp("everos") / "store", models, off=("extract_user_profile",)) as everos:
        yield everos


@pytest.fixture(autouse=True)
def answering(recording: Recording) -> Iterator[None]:
    OpenAIInstrumentor().instrument(tracer_provider=recording.provider, skip_dep_check=True)
    yield
    OpenAIInstrumentor().uninstrument()


async def verdict(ann: Memory, recording: Recording, question: str, answer: str, top_k: int = 3) -> tuple[Verdict, str]:
    """Ask, answer wrongly and give feedback. Returns the verdict and the purpose of the decisive operation."""
    with recording.tracer.start_as_current_span("turn"):
        found = await ann.search(question, top_k=top_k)
        memories = "\n".join(episode["episode"] for episode in found["episodes"])
        ann.everos.models.by_kind[""] = [answer]
        client = openai.OpenAI(base_url=ann.everos.models.url, api_key="none", max_retries=0)
        messages = [{"role": "user", "content": f"Memories:\n{memories}\n\nQuestion: {question}"}]
        await asyncio.to_thread(client.chat.completions.create, model="m", messages=messages)
        assert feedback("incorrect", expected="Lisbon", tracer=recording.tracer)
    seen = recorded(recording)
    (given,) = attribute_trace(seen.graph)
    assert given.complete
    blamed = seen.by_origin(f"{given.trace_id}-{given.span_id}")
    return given, str(blamed.attributes.get(semconv.OP_PURPOSE, ""))


async def test_an_episode_without_the_fact_is_an_extraction_failure(
    ann: Memory, models: EverosModels, recording: Recording
) -> None:
    models.by_kind["episode"] = [{"title": "home", "content": "Ann told where she lives.", "summary": ""}]
    await ann.tell(*TOLD)
    given, purpose = await verdict(ann, recording, "In which city does Ann live?", "I do not know.")
    assert (given.failure_type, purpose) == ("extraction", "memory_system.extract_memory")


async def test_a_search_without_the_fact_is_a_retrieval_failure(ann: Memory, recording: Recording) -> None:
    await ann.tell(*TOLD)
    await ann.tell("TOPIC In which city does Rex live. In which city does Rex eat.")
    given, purpose = await verdict(ann, recording, "In which city does Rex or Ann live?", "I do not know.", top_k=1)
    assert (given.failure_type, purpose) == (
        "retrieval",
        "memory_system.hybrid_retrieval",
    )  # the ranker dropped the episode


async def test_a_model_that_misreads_its_memories_is_a_response_failure(ann: Memory, recording: Recording) -> None:
    await ann.tell(*TOLD)
    given, _ = await verdict(ann, recording, "In which city does Ann live?", "In Rome.")
    assert (given.failure_type, given.operation) == ("response", "chat m")
