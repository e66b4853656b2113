"""The stream contract for a chat model and a chain: iterators, coroutines and events."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import openai
import pytest
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_openai import ChatOpenAI

from memtrace_otel.instrumentation.langchain import LangChainInstrumentor
from tests.harness import StreamedContract
from tests.integration.langchain.conftest import ChatStub, Hashed

SAID = "It sleeps on the red sofa, I think."
PROMPT = ChatPromptTemplate.from_template("Notes: {context}\nQuestion: {question}")


class Streaming:
    """Asks a model, alone or at the end of a retrieval chain."""

    def __init__(self, model: Any, way: str, in_chain: bool) -> None:
        self.way, self.asked = way, model | StrOutputParser()
        if in_chain:
            store = InMemoryVectorStore(Hashed())
            store.add_texts(["The cat sleeps on the red sofa.", "The dog likes the garden."])
            context = store.as_retriever(search_kwargs={"k": 1}) | (lambda found: found[0].page_content)
            self.asked = {"context": context, "question": lambda asked: asked} | PROMPT | self.asked

    async def stream(self, query: str) -> list[object]:
        if self.way == "stream":
            return list(self.asked.stream(query))
        if self.way == "astream":
            return [piece async for piece in self.asked.astream(query)]
        events = [event async for event in self.asked.astream_events(query, version="v2")]
        return [event["data"]["chunk"] for event in events if event["event"] == "on_parser_stream"]

    async def close(self) -> None:
        pass


class OfProvider(Streaming):
    """The same program on a model server."""

    def __init__(self, url: str, way: str, in_chain: bool) -> None:
        self.client = openai.DefaultAsyncHttpxClient()  # LangChain's own is shared, and bound to the first event loop
        options: Any = {"base_url": url, "api_key": "none", "max_retries": 0, "http_async_client": self.client}
        super().__init__(ChatOpenAI(model="stub", **options), way, in_chain)

    async def close(self) -> None:
        await self.client.aclose()


def scripted() -> GenericFakeChatModel:
    """A fake model of LangChain that streams word by word."""
    return GenericFakeChatModel(messages=iter([SAID]))


@pytest.mark.parametrize("in_chain", [False, True], ids=["model", "chain"])
@pytest.mark.parametrize("way", ["stream", "astream", "astream_events"])
class Streams(StreamedContract):
    instrumentor = LangChainInstrumentor


class TestStreams(Streams):
    @pytest.fixture
    def program(self, way: str, in_chain: bool) -> Callable[[], Streaming]:
        return lambda: Streaming(scripted(), way, in_chain)


class TestProvidersStreams(Streams):
    @pytest.fixture
    def program(self, way: str, in_chain: bool) -> Iterator[Callable[[], Streaming]]:
        with ChatStub() as server:
            server.script = [SAID, SAID]
            yield lambda: OfProvider(server.url, way, in_chain)
