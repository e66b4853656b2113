"""Chat models: one answer per call through `openai`, another provider, streams and other instrumentations."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.language_models import LLM, BaseChatModel, GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage
from langchain_core.outputs import ChatGeneration, ChatResult, GenerationChunk
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_openai import ChatOpenAI

from memtrace_otel.capture import operation
from memtrace_otel.capture.finalizers import report_waiting
from memtrace_otel.instrumentation.openai import OpenAIInstrumentor
from memtrace_otel.semconv import OpKind
from tests.conftest import Recording
from tests.integration.langchain.conftest import ChatStub, kinds, names

pytestmark = pytest.mark.usefixtures("instrumented", "content_on")

PROMPT = "Ann lives in Paris.\n\nWhere does Ann live?"


def fake() -> GenericFakeChatModel:
    return GenericFakeChatModel(messages=iter(AIMessage("In Paris.") for _ in range(9)))


class Completing(LLM):
    """A model that completes a text."""

    @property
    def _llm_type(self) -> str:
        return "completing"

    def _call(self, prompt: str, *args: Any, **kwargs: Any) -> str:
        return "In Paris."

    def _stream(self, prompt: str, *args: Any, **kwargs: Any) -> Iterator[GenerationChunk]:
        yield from (GenerationChunk(text=piece) for piece in ("In ", "Paris."))


@pytest.fixture(params=["openai", "openai streaming", "fake", "completing"])
def chat(request: pytest.FixtureRequest, model: ChatOpenAI, server: ChatStub) -> BaseChatModel | LLM:
    server.script = ["In Paris."] * 9
    if request.param == "fake":
        return fake()
    if request.param == "completing":
        return Completing()
    return model.model_copy(update={"streaming": request.param == "openai streaming"})


def text(reply: BaseMessage | str) -> str:
    return reply if isinstance(reply, str) else str(reply.content)


async def say(chat: BaseChatModel | LLM, way: str) -> str:
    if way == "invoke":
        return text(chat.invoke(PROMPT))
    if way == "ainvoke":
        return text(await chat.ainvoke(PROMPT))
    if way == "batch":
        return text(chat.batch([PROMPT])[0])
    if way == "stream":
        return "".join(map(text, chat.stream(PROMPT)))
    return "".join([text(chunk) async for chunk in chat.astream(PROMPT)])


@pytest.mark.parametrize("way", ["invoke", "ainvoke", "batch", "stream", "astream"])
async def test_each_calling_style_records_one_answer(
    way: str, chat: BaseChatModel | LLM, store: InMemoryVectorStore, recording: Recording
) -> None:
    store.add_texts(["Ann lives in Paris."], ids=["paris"])
    with recording.tracer.start_as_current_span("turn"):
        store.similarity_search("Where does Ann live?", k=1)
        assert await say(chat, way) == "In Paris."
    [answer] = kinds(recording, "respond")
    assert answer.name.split()[0] == "chat"
    assert [v.content for v in answer.outputs] == ["In Paris."]
    assert {(v.role, v.ref.partition(":")[0]) for v in answer.inputs} == {
        ("query", "query"),
        ("context", "context"),
        ("context", "chunk"),
    }
    assert [v.ref for v in answer.inputs if v.ref.startswith("chunk:")] == ["chunk:paris"]
    [turn] = recording.named("turn")
    assert answer.parent_id == f"{turn.context.span_id:016x}"


def test_a_batch_of_completed_texts_is_no_answer(recording: Recording) -> None:
    assert Completing().batch([PROMPT, "And Bob?"]) == ["In Paris."] * 2
    assert not kinds(recording, "respond")


def test_langchain_records_openai_models_without_the_openai_instrumentor(
    model: ChatOpenAI, server: ChatStub, recording: Recording
) -> None:
    OpenAIInstrumentor().uninstrument()
    server.script = ["In Paris."]
    model.invoke(PROMPT)
    [answer] = kinds(recording, "respond")
    assert (answer.system, answer.name) == ("langchain", "chat stub")
    assert answer.attributes["gen_ai.provider.name"] == "openai"
    assert answer.attributes["gen_ai.usage.output_tokens"] == 1
    OpenAIInstrumentor().instrument(tracer_provider=recording.provider, skip_dep_check=True)


class Own(BaseChatModel):
    """A model class of the application on the `openai` package."""

    client: Any

    @property
    def _llm_type(self) -> str:
        return "own"

    def _generate(self, messages: list[BaseMessage], *args: Any, **kwargs: Any) -> ChatResult:
        given = [{"role": "user", "content": message.content} for message in messages]
        reply = self.client.chat.completions.create(model="stub", messages=given).choices[0].message.content
        return ChatResult(generations=[ChatGeneration(message=AIMessage(reply))])


def test_a_custom_model_on_the_openai_package_is_recorded_once(
    model: ChatOpenAI, server: ChatStub, recording: Recording
) -> None:
    server.script = ["In Paris."] * 2
    own = Own(client=model.root_client)
    assert own.invoke(PROMPT).content == "In Paris."
    assert [c.content for c in own.stream(PROMPT)] == ["In Paris."]
    assert [answer.system for answer in kinds(recording, "respond")] == ["langchain", "langchain"]


def test_a_model_call_inside_another_operation_gets_no_span(recording: Recording) -> None:
    with operation(kind=OpKind.EXTRACT, system="mine", tracer=recording.tracer):
        fake().invoke(PROMPT)
        list(fake().stream(PROMPT))
    assert names(recording) == ["memtrace.extract"]


class Failing(BaseChatModel):
    """A provider that fails at the first or the second word."""

    @property
    def _llm_type(self) -> str:
        return "failing"

    def _generate(self, *args: Any, **kwargs: Any) -> ChatResult:
        raise ConnectionError("down")


class FailingLater(GenericFakeChatModel):
    def _stream(self, *args: Any, **kwargs: Any) -> Iterator[Any]:
        yield from list(super()._stream(*args, **kwargs))[:1]
        raise ConnectionError("down")


def test_errors_and_abandoned_streams_end_their_spans(recording: Recording) -> None:
    with pytest.raises(ConnectionError):
        Failing().invoke(PROMPT)
    with pytest.raises(ConnectionError):
        list(FailingLater(messages=iter([AIMessage("In Paris, yes.")])).stream(PROMPT))
    left = GenericFakeChatModel(messages=iter([AIMessage("In Paris, yes.")])).stream(PROMPT)
    next(left)
    left.close()  # pyright: ignore
    gc.collect()
    report_waiting()
    failed, broken, half = kinds(recording, "respond")
    assert [op.status for op in (failed, broken)] == ["error", "error"]
    assert [v.role for v in failed.inputs] == ["query"]
    assert "truncated" in half.incomplete
