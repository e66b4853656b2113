"""One answer per question: streamed or not, through chat engines, routers, sub-questions and agents."""

from __future__ import annotations

import gc
import json
from collections.abc import Iterator
from types import GeneratorType
from typing import Any

import pytest
from llama_index.core import Settings, VectorStoreIndex
from llama_index.core.agent.workflow import ReActAgent
from llama_index.core.chat_engine import CondensePlusContextChatEngine, ContextChatEngine, SimpleChatEngine
from llama_index.core.query_engine import RouterQueryEngine, SubQuestionQueryEngine
from llama_index.core.question_gen import LLMQuestionGenerator
from llama_index.core.selectors import LLMSingleSelector
from llama_index.core.tools import QueryEngineTool

from memtrace_otel.capture import current_operation
from memtrace_otel.capture.finalizers import report_waiting
from memtrace_otel.instrumentation.openai import OpenAIInstrumentor
from memtrace_otel.model import OperationSpan, Variable, content_digest
from tests.conftest import Recording
from tests.integration.llamaindex.conftest import (
    RagModel,
    memory,
    operations,
    purpose,
    reads,
    tree,
)

QUESTION = "Where does Alice live?"
pytestmark = pytest.mark.usefixtures("content_on")


@pytest.fixture(params=["alone", "beside the OpenAI instrumentor"], autouse=True)
def model_instrumentation(request: pytest.FixtureRequest, instrumented: Recording) -> Iterator[None]:
    """Every answer here is recorded the same way with and without an instrumentation of the model calls."""
    if request.param != "alone":
        OpenAIInstrumentor().instrument(tracer_provider=instrumented.provider)
    yield
    OpenAIInstrumentor().uninstrument()
    assert current_operation() is None


def the_answer(recording: Recording) -> tuple[OperationSpan, Variable]:
    """The only recorded answer, and its operation."""
    found = [(span, v) for span in operations(recording) for v in span.outputs if v.ref.startswith("answer:")]
    assert len(found) == 1
    return found[0]


def test_a_streamed_answer_is_recorded_at_its_end(
    index: VectorStoreIndex, recording: Recording, model: RagModel
) -> None:
    model.script.append("She lives in Paris.")
    response: Any = index.as_query_engine(streaming=True, similarity_top_k=1).query(QUESTION)
    assert type(response.response_gen) is GeneratorType
    assert [span.name for span in operations(recording)] == ["retrieval"]
    assert "".join(response.response_gen) == "She lives in Paris."
    chat, answer = the_answer(recording)
    assert (chat.name, answer.content) == ("chat", "She lives in Paris.")
    assert [v.ref.partition(":")[0] for v in reads(chat, "context")] == ["context", "chunk"]


@pytest.mark.parametrize("taken", [0, 2])
def test_a_stream_that_is_not_read_to_its_end_is_truncated(
    taken: int, index: VectorStoreIndex, recording: Recording, model: RagModel
) -> None:
    model.script.append("She lives in Paris.")
    response: Any = index.as_query_engine(streaming=True).query(QUESTION)
    for _ in range(taken):
        next(response.response_gen)
    del response
    gc.collect()
    report_waiting()
    (chat,) = operations(recording, "chat")
    assert "truncated" in chat.incomplete
    assert [v.content for v in chat.outputs] == (["She lives"] if taken else [])


def test_a_failing_stream_raises_and_ends_its_operation(
    index: VectorStoreIndex, recording: Recording, model: RagModel
) -> None:
    model.script.append(500)
    with pytest.raises(Exception, match="scripted failure"):
        list(index.as_query_engine(streaming=True).query(QUESTION).response_gen)  # type: ignore[union-attr]
    (chat,) = operations(recording, "chat")
    assert chat.status == "error"


@pytest.mark.parametrize("stream", [False, True])
async def test_a_chat_engine_answers_from_context_and_history(
    stream: bool, index: VectorStoreIndex, recording: Recording, model: RagModel
) -> None:
    engine = ContextChatEngine.from_defaults(index.as_retriever(similarity_top_k=1), memory=memory())
    model.script += ["In Paris.", "A dog."]
    await engine.achat(QUESTION)
    recording.clear()
    if stream:
        streamed = await engine.astream_chat("What pet does Alice have?")
        assert "".join([token async for token in streamed.async_response_gen()]) == "A dog."
    else:
        assert str(await engine.achat("What pet does Alice have?")) == "A dog."
    chat, answer = the_answer(recording)
    assert answer.content == "A dog."
    assert [v.content for v in reads(chat, "query")] == ["What pet does Alice have?"]
    retrieval, remembered = operations(recording, "retrieval")[0], operations(recording, "search_memory")[0]
    assert {v.origin for v in reads(chat, "context") if v.ref.startswith("context:")} == {
        retrieval.origin,
        remembered.origin,
    }
    assert reads(remembered, "hit")[0].ref == "state:s1"
    assert [v.digest for v in reads(remembered, "history")] == [content_digest(QUESTION), content_digest("In Paris.")]


def test_a_synchronous_chat_stream_is_read_in_a_thread(recording: Recording, model: RagModel) -> None:
    engine = SimpleChatEngine.from_defaults(memory=memory())
    model.script.append("Hello to you.")
    assert "".join(engine.stream_chat("Hello!").response_gen) == "Hello to you."
    chat, answer = the_answer(recording)
    assert (purpose(chat), answer.content) == ("SimpleChatEngine.stream_chat", "Hello to you.")
    assert [v.role for v in chat.inputs] == ["query", "context"]
    puts = operations(recording, "upsert_memory")
    assert [put.outputs[0].content for put in puts] == ["Hello!", "Hello!\nHello to you."]
    assert {put.parent_id for put in puts} == {chat.span_id}


def test_a_condensed_question_is_a_step_of_the_answer(
    index: VectorStoreIndex, recording: Recording, model: RagModel
) -> None:
    engine = CondensePlusContextChatEngine.from_defaults(index.as_retriever(similarity_top_k=1), memory=memory())
    model.script += ["In Paris.", "What pet does Alice have?", "A dog."]
    engine.chat(QUESTION)
    recording.clear()
    assert str(engine.chat("And her pet?")) == "A dog."
    chat, _ = the_answer(recording)
    (retrieval,) = operations(recording, "retrieval")
    assert [v.content for v in reads(chat, "query")] == ["And her pet?"]
    assert [v.content for v in reads(retrieval, "query")] == ["What pet does Alice have?"]
    assert retrieval.origin in {v.origin for v in reads(chat, "context")}


def test_a_router_answers_once(index: VectorStoreIndex, recording: Recording, model: RagModel) -> None:
    tool = QueryEngineTool.from_defaults(index.as_query_engine(similarity_top_k=1), description="people")
    selector = LLMSingleSelector.from_defaults(llm=Settings.llm)
    engine = RouterQueryEngine.from_defaults([tool], llm=Settings.llm, selector=selector)
    model.script += ['[{"choice": 1, "reason": "people"}]', "In Paris."]
    assert str(engine.query(QUESTION)) == "In Paris."
    assert the_answer(recording)[1].content == "In Paris."
    assert tree(recording) == ["chat", "  retrieval"]


@pytest.mark.parametrize("use_async", [False, True])
def test_sub_questions_are_steps_of_the_answer(
    use_async: bool, index: VectorStoreIndex, recording: Recording, model: RagModel
) -> None:
    tool = QueryEngineTool.from_defaults(index.as_query_engine(similarity_top_k=1), name="people", description="people")
    engine = SubQuestionQueryEngine.from_defaults(
        [tool], question_gen=LLMQuestionGenerator.from_defaults(llm=Settings.llm), use_async=use_async, verbose=False
    )
    asked = ["Where does Alice live?", "What does Bob play?"]
    items = [{"sub_question": question, "tool_name": "people"} for question in asked]

    def reply(prompt: str) -> str:
        if "sub-questions" in prompt:
            return f"```json\n{json.dumps({'items': items})}\n```"
        return "Paris and chess." if "Sub question" in prompt else "A sub-answer."

    model.script = [reply] * 4
    assert str(engine.query("Who are Alice and Bob?")) == "Paris and chess."
    chat, answer = the_answer(recording)
    assert answer.content == "Paris and chess."
    retrievals = operations(recording, "retrieval")
    assert sorted(reads(span, "query")[0].content for span in retrievals) == sorted(asked)
    assert {span.parent_id for span in retrievals} == {chat.span_id}
    used = {v.ref for v in reads(chat, "context")}
    assert {f"context:{span.span_id}" for span in retrievals} <= used
    hits = {hit.ref for span in retrievals for hit in reads(span, "hit")}
    assert {ref for ref in used if ref.startswith("chunk:")} == hits  # no node made of the answer to a sub-question
    assert "unknown_origin" not in chat.incomplete


@pytest.fixture
def agent(index: VectorStoreIndex) -> ReActAgent:
    people = index.as_query_engine(similarity_top_k=1)
    tool = QueryEngineTool.from_defaults(people, name="people", description="where people live")
    return ReActAgent(tools=[tool], llm=Settings.llm)


async def test_the_turn_of_an_agent_is_one_answer(agent: ReActAgent, recording: Recording, model: RagModel) -> None:
    model.script += [
        'Thought: I need a tool.\nAction: people\nAction Input: {"input": "Where does Alice live?"}',
        "In Paris.",
        "Thought: I can answer without using any more tools.\nAnswer: Alice lives in Paris.",
    ]
    turn = await agent.run("Where does she live?", memory=memory())
    assert str(turn) == "Alice lives in Paris."
    chat, answer = the_answer(recording)
    assert answer.content == "Alice lives in Paris."
    assert [v.content for v in reads(chat, "query")] == ["Where does she live?"]
    (retrieval,) = operations(recording, "retrieval")
    assert [v.ref for v in reads(chat, "context") if v.ref.startswith("chunk:")] == [reads(retrieval, "hit")[0].ref]
    assert {span.parent_id for span in operations(recording) if span.origin != chat.origin} == {chat.span_id}
    puts = operations(recording, "upsert_memory")
    read = {v.origin for v in reads(chat, "context")}
    assert read
    assert not any(span.origin in read for span in operations(recording, "search_memory") if span.start > puts[-1].end)


async def test_a_failing_agent_ends_its_operation(agent: ReActAgent, recording: Recording, model: RagModel) -> None:
    model.script.append(500)
    with pytest.raises(Exception, match="scripted failure"):
        await agent.run("Where does she live?", memory=memory())
    (chat,) = operations(recording, "chat")
    assert (chat.status, chat.outputs) == ("error", ())
