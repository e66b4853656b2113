"""The instrumentor contract for LangChain: split, add, retrieve; in memory and in Chroma, sync and async."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from langchain_chroma import Chroma
from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore
from opentelemetry.instrumentation.utils import suppress_instrumentation

from memtrace_otel.instrumentation.langchain import LangChainInstrumentor
from tests.harness import (
    CancelledContract,
    InstrumentorContract,
    SynchronousContract,
    ThreadedContract,
)
from tests.integration.langchain.conftest import Hashed, by_line

_numbers = itertools.count()


def in_memory(embedding: Hashed) -> Any:
    return InMemoryVectorStore(embedding)


def chroma(embedding: Hashed) -> Any:
    return Chroma(f"contract-{next(_numbers)}", embedding)


class Rag:
    """Chunks of texts in a vector store, found by a retriever."""

    def __init__(self, make: Callable[[Hashed], Any]) -> None:
        self.embedding = Hashed()
        self.store = make(self.embedding)

    async def write(self, text: str) -> object:
        return len(self.store.add_documents(by_line().split_documents([Document(text, metadata={"source": "notes"})])))

    async def read(self, query: str) -> object:
        return [found.page_content for found in self.store.as_retriever(search_kwargs={"k": 2}).invoke(query)]

    async def fail(self) -> object:
        self.embedding.broken = True
        return self.store.add_documents([Document("never")])

    async def close(self) -> None:
        if isinstance(self.store, Chroma):
            with suppress_instrumentation():
                self.store.delete_collection()


class AsyncRag(Rag):
    """The same program with coroutines."""

    async def write(self, text: str) -> object:
        chunks = by_line().split_documents([Document(text, metadata={"source": "notes"})])
        return len(await self.store.aadd_documents(chunks))

    async def read(self, query: str) -> object:
        return [d.page_content for d in await self.store.as_retriever(search_kwargs={"k": 2}).ainvoke(query)]

    async def fail(self) -> object:
        self.embedding.broken = True
        return await self.store.aadd_documents([Document("never")])

    async def hang(self) -> object:
        self.embedding.hangs = True
        return await self.store.aadd_documents([Document("never")])


STORES = {"in memory": in_memory, "chroma": chroma}


class Contract(InstrumentorContract, ThreadedContract):
    instrumentor = LangChainInstrumentor
    entry_point = "memtrace_langchain"


class TestLangChain(Contract, SynchronousContract):
    @pytest.fixture(params=STORES.values(), ids=STORES.keys())
    def program(self, request: pytest.FixtureRequest) -> Callable[[], Rag]:
        return partial(Rag, request.param)


class TestAsyncLangChain(Contract, CancelledContract):
    @pytest.fixture(params=STORES.values(), ids=STORES.keys())
    def program(self, request: pytest.FixtureRequest) -> Callable[[], Rag]:
        return partial(AsyncRag, request.param)
