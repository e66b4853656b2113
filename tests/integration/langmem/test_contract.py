"""The instrumentor contract for langmem and the libraries below langmem."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from copy import deepcopy
from functools import partial
from importlib.metadata import entry_points
from typing import Any

import openai
import pytest
from langchain_openai import ChatOpenAI
from langgraph.func import entrypoint
from langgraph.store.memory import InMemoryStore
from langmem import ReflectionExecutor, create_memory_store_manager

from memtrace_otel.instrumentation.langchain import LangChainInstrumentor
from memtrace_otel.instrumentation.langchain.langgraph import LangGraphInstrumentor
from memtrace_otel.instrumentation.langchain.langmem import LangMemInstrumentor
from tests.harness import (
    CancelledContract,
    InstrumentorContract,
    ReentrantContract,
    SynchronousContract,
    ThreadedContract,
)
from tests.integration.langchain.conftest import ChatStub, Hashed
from tests.integration.langmem.conftest import CONFIG, OWNER, remembers

PARTS = (LangMemInstrumentor, LangGraphInstrumentor, LangChainInstrumentor)


class Together:
    """The instrumentors of langmem, its store and its models."""

    __module__ = LangMemInstrumentor.__module__  # whose functions are broken one by one
    patches = property(lambda self: LangMemInstrumentor().patches)
    is_instrumented_by_opentelemetry = property(lambda self: LangMemInstrumentor().is_instrumented_by_opentelemetry)

    def instrument(self, **kwargs: Any) -> None:
        for part in PARTS:
            part().instrument(**kwargs)

    def uninstrument(self) -> None:
        for part in PARTS:
            part().uninstrument()


def extracting(prompt: str) -> Any:
    """A scripted model: each sentence of the user is a memory."""
    if "never" in prompt:
        return 500
    said = re.findall(r"My [^.\n]*\.", prompt.rpartition("<conversation")[2] or prompt)
    return json.dumps(remembers(*dict.fromkeys(said[-1:])))


class Memories:
    """Messages go through the manager, questions to its store."""

    def __init__(self, url: str) -> None:
        self.embedding = Hashed()
        self.store = InMemoryStore(index={"embed": self.embedding, "dims": 64})
        self.client = openai.DefaultAsyncHttpxClient()  # LangChain's own is shared, and bound to the first event loop
        options: Any = {"base_url": url, "api_key": "none", "max_retries": 0, "http_async_client": self.client}
        model = ChatOpenAI(model="stub", **options)
        manager = create_memory_store_manager(model, namespace=("memories", "{user_id}"))

        @entrypoint(store=self.store)
        def run(messages: list[Any]) -> Any:
            return manager.invoke({"messages": messages}, config=CONFIG)

        @entrypoint(store=self.store)
        async def arun(messages: list[Any]) -> Any:
            return await manager.ainvoke({"messages": messages}, config=CONFIG)

        self.manager, self.run, self.arun = manager, run, arun

    async def write(self, text: str) -> object:
        return self._seen(self.run.invoke([{"role": "user", "content": text}], CONFIG))

    async def read(self, query: str) -> object:
        return [item.value for item in self.store.search(OWNER, query=query)]

    async def fail(self) -> object:
        return await self.write("never")

    async def close(self) -> None:
        pass

    async def explore(self) -> object:
        """A delayed reflection."""
        executor: Any = ReflectionExecutor(self.manager, store=self.store)
        given = {"messages": [{"role": "user", "content": "My horse runs."}]}
        config = deepcopy(CONFIG)  # the executor leaves its store in there
        stored = executor.submit(given, config=config, after_seconds=0).result(timeout=20)
        executor._worker_running = False  # its own shutdown waits for nothing that it stops
        executor._worker.join(5)
        return self._seen(stored)

    async def reenter(self, text: str, query: str) -> object:
        """The embedder searches once before it embeds a stored text."""
        embed, found = self.embedding.embed_documents, list[object]()

        def embedding(texts: list[str]) -> list[list[float]]:
            if not found and any("dog" in text for text in texts):
                found.append(None)
                found[0] = [item.value for item in self.store.search(OWNER, query=query)]
            return embed(texts)

        self.embedding.embed_documents = embedding
        return await self.write(text), found

    def _seen(self, stored: Any) -> object:
        return sorted(put["value"]["content"]["content"] for put in stored)


class AsyncMemories(Memories):
    """The same program with coroutines."""

    async def write(self, text: str) -> object:
        return self._seen(await self.arun.ainvoke([{"role": "user", "content": text}], CONFIG))

    async def read(self, query: str) -> object:
        return [item.value for item in await self.store.asearch(OWNER, query=query)]

    async def close(self) -> None:
        await self.client.aclose()

    async def hang(self) -> object:
        self.embedding.hangs = True
        return await self.write("My dog sleeps.")


def programs(kind: type[Memories]) -> Iterator[Callable[[], Memories]]:
    with ChatStub() as server:
        server.script = [extracting] * 1000
        yield partial(kind, server.url)


class Contract(InstrumentorContract, ThreadedContract, ReentrantContract):
    instrumentor = Together  # pyright: ignore


class TestLangMem(Contract, SynchronousContract):
    @pytest.fixture
    def program(self) -> Iterator[Callable[[], Memories]]:
        yield from programs(Memories)

    def test_the_entry_point_loads_the_instrumentor(self) -> None:
        (found,) = entry_points(group="opentelemetry_instrumentor", name="memtrace_langmem")
        assert found.load() is LangMemInstrumentor


class TestAsyncLangMem(Contract, CancelledContract):
    @pytest.fixture
    def program(self) -> Iterator[Callable[[], Memories]]:
        yield from programs(AsyncMemories)
