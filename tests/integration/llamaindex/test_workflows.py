"""Workflows of the program: each step runs in its own context and reads the retrievals of earlier steps."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import nullcontext
from typing import Any

import pytest
from llama_index.core import Settings, VectorStoreIndex, get_response_synthesizer
from llama_index.core.workflow import Event, StartEvent, StopEvent, Workflow, step

from memtrace_otel.instrumentation.openai import OpenAIInstrumentor
from tests.conftest import Recording
from tests.integration.llamaindex.conftest import operations, reads

pytestmark = pytest.mark.usefixtures("content_on")
ALICE, BOB = "Where does Alice live?", "What does Bob play?"


@pytest.fixture(autouse=True)
def model_calls(instrumented: Recording) -> Iterator[None]:
    OpenAIInstrumentor().instrument(tracer_provider=instrumented.provider)
    yield
    OpenAIInstrumentor().uninstrument()


class Found(Event):
    nodes: list[Any]
    query: str


class Retrieving(Workflow):
    def __init__(self, index: VectorStoreIndex) -> None:
        super().__init__()
        self.index = index

    @step
    async def retrieve(self, ev: StartEvent) -> Found:
        found = await self.index.as_retriever(similarity_top_k=1).aretrieve(ev.query)
        await asyncio.sleep(0)
        return Found(nodes=found, query=ev.query)


class Synthesizing(Retrieving):
    @step
    async def answer(self, ev: Found) -> StopEvent:
        made = await get_response_synthesizer(llm=Settings.llm).asynthesize(ev.query, nodes=ev.nodes)
        return StopEvent(result=str(made))


class Prompting(Retrieving):
    @step
    async def answer(self, ev: Found) -> StopEvent:
        notes = "\n".join(one.node.get_content() for one in ev.nodes)
        return StopEvent(result=str(await Settings.llm.acomplete(f"Notes: {notes}\nQuestion: {ev.query}")))


@pytest.mark.parametrize("around", ["no span", "a span"])
@pytest.mark.parametrize("kind", [Synthesizing, Prompting])
async def test_a_workflow_step_answers_from_the_retrieval_of_another_step(
    kind: type[Retrieving], around: str, index: VectorStoreIndex, recording: Recording
) -> None:
    async def turn(question: str) -> None:
        await kind(index).run(query=question)

    with recording.tracer.start_as_current_span("session") if around == "a span" else nullcontext():
        await asyncio.gather(*map(turn, (ALICE, ALICE, BOB)))
        await turn(ALICE)

    searches = [f"context:{span.span_id}" for span in operations(recording, "retrieval")]
    answers = [span for span in operations(recording) if span.kind == "respond"]
    used = [[v.ref for v in reads(answer, "context") if v.ref.startswith("context:")] for answer in answers]
    assert sorted(used) == sorted([made] for made in searches)
    by_question = {
        reads(span, "query")[0].ref: reads(span, "hit")[0].ref for span in operations(recording, "retrieval")
    }
    for answer in answers:
        chunks = [v.ref for v in reads(answer, "context") if v.ref.startswith("chunk:")]
        assert chunks == [by_question[reads(answer, "query")[0].ref]]
