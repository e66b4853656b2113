"""Beside other instrumentations of LangChain: their spans stay as they are, a chat call or retrieval has one span."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pytest
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_openai import ChatOpenAI
from openinference.instrumentation.langchain import LangChainInstrumentor as OpenInference
from opentelemetry.instrumentation.genai.langchain import LangChainInstrumentor as GenAI
from opentelemetry.sdk.trace import ReadableSpan

from memtrace_otel import semconv
from memtrace_otel.instrumentation.chat_history import conversations
from memtrace_otel.instrumentation.langchain import LangChainInstrumentor
from memtrace_otel.instrumentation.openai import OpenAIInstrumentor
from tests.conftest import Recording
from tests.integration.langchain.conftest import ChatStub, Hashed, contents, graph_of, model, server

__all__ = ["model", "server"]

OURS = (OpenAIInstrumentor, LangChainInstrumentor)
ORDERS: Mapping[str, Callable[[Any], tuple[Any, ...]]] = {
    "ours first": lambda theirs: (*OURS, theirs),
    "theirs first": lambda theirs: (theirs, *OURS),
}
PROMPT = ChatPromptTemplate.from_template("Context: {context}\nQuestion: {question}")
QUESTION = "Where is it that Ann lives?"

pytestmark = pytest.mark.usefixtures("content_on")


@contextmanager
def instrumented(*kinds: Any) -> Iterator[Recording]:
    recording = Recording()
    conversations.forget()
    for kind in kinds:
        kind().instrument(tracer_provider=recording.provider, skip_dep_check=True)
    try:
        yield recording
    finally:
        for kind in reversed(kinds):
            kind().uninstrument()


async def turn(recording: Recording, chat: Any, way: str) -> str:
    """Fill a store, retrieve, answer."""
    store = InMemoryVectorStore(Hashed())
    store.add_texts(["Ann lives in Paris.", "Bob plays chess."], ids=["paris", "chess"])
    chain: Any = (
        {"context": store.as_retriever(search_kwargs={"k": 1}), "question": lambda asked: asked} | PROMPT | chat
    )
    with recording.tracer.start_as_current_span("turn"):
        if way == "invoke":
            return chain.invoke(QUESTION).content
        if way == "stream":
            return "".join(chunk.content for chunk in chain.stream(QUESTION))
        if way == "ainvoke":
            return (await chain.ainvoke(QUESTION)).content
        return "".join([chunk.content async for chunk in chain.astream(QUESTION)])


def fake() -> GenericFakeChatModel:
    return GenericFakeChatModel(messages=iter([AIMessage("In Paris.")]))


def theirs(recording: Recording) -> list[tuple[str, str, list[str]]]:
    """Their spans by name, parent and attributes."""
    spans = [span for span in recording.spans() if not span.instrumentation_scope.name.startswith("memtrace_otel")]  # pyright: ignore
    by_id = {span.context.span_id: span.name for span in spans if span.context}
    return sorted(
        (span.name, by_id.get(span.parent.span_id, "") if span.parent else "", their_attributes(span)) for span in spans
    )


def their_attributes(span: ReadableSpan) -> list[str]:
    return sorted(key for key in span.attributes or {} if not key.startswith("memtrace."))


def records_chat(recording: Recording) -> bool:
    """Whether the other instrumentation has a span for the chat call."""
    values = [value for span in recording.spans() for value in (span.attributes or {}).values()]
    return "chat" in values or "LLM" in values


@pytest.mark.parametrize("way", ["invoke", "stream", "ainvoke", "astream"])
@pytest.mark.parametrize("chat", ["openai", "fake"])
@pytest.mark.parametrize("order", ORDERS.values(), ids=ORDERS.keys())
@pytest.mark.parametrize("other", [GenAI, OpenInference], ids=["genai", "openinference"])
async def test_nothing_is_recorded_twice(
    other: Any, order: Any, chat: str, way: str, model: ChatOpenAI, server: ChatStub
) -> None:
    server.script = ["In Paris."] * 2

    def asked() -> Any:
        return model if chat == "openai" else fake()

    with instrumented(other) as alone:
        assert await turn(alone, asked(), way) == "In Paris."
    with instrumented(*order(other)) as both:
        assert await turn(both, asked(), way) == "In Paris."
    assert theirs(both) == theirs(alone)

    ours = [span for span in both.spans() if semconv.OP_KIND in (span.attributes or {})]
    made_by = {str((s.attributes or {})[semconv.OP_KIND]): s.instrumentation_scope.name for s in ours}  # pyright: ignore
    assert sorted(made_by) == ["create", "respond", "retrieve"]
    assert len(ours) == 3
    assert made_by["create"].startswith("memtrace_otel")
    if records_chat(alone):  # theirs, enriched
        assert not made_by["respond"].startswith("memtrace_otel")
    else:
        assert (other, chat) == (GenAI, "fake")  # it has no span for a model without a name
    assert not made_by["retrieve"].startswith("memtrace_otel")
    graph = graph_of(both)
    [answer] = graph.operations(kind="respond")
    assert contents(graph, answer.origin, "query") == {QUESTION}
    assert contents(graph, answer.origin, "chunk") == {"Ann lives in Paris."}
    assert contents(graph, answer.origin, "document") == {"Ann lives in Paris."}


@pytest.mark.parametrize("other", [GenAI, OpenInference], ids=["genai", "openinference"])
def test_without_a_span_around_it_each_chain_is_a_turn(other: Any, model: ChatOpenAI, server: ChatStub) -> None:
    questions = {QUESTION: "Ann lives in Paris.", "What is it that Bob plays?": "Bob plays chess."}
    server.script = ["In Paris.", "Chess."]
    with instrumented(other, *OURS) as recording:
        store = InMemoryVectorStore(Hashed())
        store.add_texts([*questions.values(), "Rex is a dog."], ids=["paris", "chess", "dog"])
        store.similarity_search("Who is a dog?", k=1)  # none of the answers' business
        retriever = store.as_retriever(search_kwargs={"k": 1})
        chain: Any = {"context": retriever, "question": lambda asked: asked} | PROMPT | model
        for question in questions:
            chain.invoke(question)
    graph = graph_of(recording)
    answers = sorted(graph.operations(kind="respond"), key=lambda answer: answer.start)
    assert [contents(graph, answer.origin, "query") for answer in answers] == [{question} for question in questions]
    assert [contents(graph, answer.origin, "chunk") for answer in answers] == [{text} for text in questions.values()]
