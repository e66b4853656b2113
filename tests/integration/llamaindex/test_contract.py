"""The contract of instrumentors for LlamaIndex: a retriever over a growing index, and a chat memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import count
from typing import Any

import pytest
from llama_index.core import Document, Settings, VectorStoreIndex
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.bridge.pydantic import Field
from llama_index.core.llms import ChatMessage, ChatResponse, MockLLM
from llama_index.core.memory import FactExtractionMemoryBlock, Memory

from memtrace_otel.instrumentation.llamaindex import LlamaIndexInstrumentor
from tests.harness import (
    CancelledContract,
    InstrumentorContract,
    ReentrantContract,
    SynchronousContract,
    ThreadedContract,
)
from tests.integration.llamaindex.conftest import RagModel, splitter

_numbers = count()


class Rag:
    """Documents inserted into an index, a query engine that answers."""

    def __init__(self, *, asynchronous: bool) -> None:
        self._async = asynchronous
        self._index = VectorStoreIndex([], transformations=[splitter()])
        self._written = 0

    async def write(self, text: str) -> object:
        self._written += 1
        document = Document(text=text, doc_id=f"d{self._written}")
        if self._async:
            await self._index.ainsert(document)
        else:
            self._index.insert(document)
        return len(self._index.docstore.docs)

    async def read(self, query: str) -> object:
        engine = self._index.as_query_engine(similarity_top_k=2, response_mode="no_text")
        response: Any = await engine.aquery(query) if self._async else engine.query(query)
        return [(found.node.get_content(), round(found.score, 6)) for found in response.source_nodes]

    async def fail(self) -> object:
        self._index._embed_model = Broken(model_name="broken")
        retriever = self._index.as_retriever()
        return await retriever.aretrieve("x") if self._async else retriever.retrieve("x")

    async def close(self) -> None:
        self._index.vector_store.data.embedding_dict.clear()


class Hanging(Rag):
    """The asynchronous variant, which can wait for an embedding without end."""

    async def hang(self) -> object:
        self._index._embed_model = Broken(model_name="hanging", hangs=True)
        return await self._index.as_retriever().aretrieve("x")


class Broken(BaseEmbedding):
    """An embedding model that does not work."""

    hangs: bool = False

    def _get_query_embedding(self, query: str) -> list[float]:
        raise RuntimeError("no embedding today")

    async def _aget_query_embedding(self, query: str) -> list[float]:
        if self.hangs:
            await asyncio.Event().wait()
        raise RuntimeError("no embedding today")

    def _get_text_embedding(self, text: str) -> list[float]:
        raise RuntimeError("no embedding today")


class Conversation:
    """A chat memory whose old messages become facts."""

    def __init__(self) -> None:
        self._session = f"s{next(_numbers)}"
        self._block = FactExtractionMemoryBlock(name="facts", llm=Settings.llm, max_facts=3)
        self._memory = Memory.from_defaults(
            session_id=self._session,
            token_limit=20,
            chat_history_token_ratio=0.5,
            token_flush_size=5,
            tokenizer_fn=str.split,
            memory_blocks=[self._block],
        )

    async def write(self, text: str) -> object:
        await self._memory.aput(ChatMessage(role="user", content=text))
        return list(self._block.facts)

    async def read(self, query: str) -> object:
        return [(str(message.role), message.content) for message in await self._memory.aget()]

    async def fail(self) -> object:
        self._memory.sql_store = None  # type: ignore[assignment]
        return await self._memory.aput(ChatMessage(role="user", content="x"))

    async def reenter(self, text: str, query: str) -> object:
        """The model that makes facts of old messages looks into the memory."""
        self._block.llm = looking = Looking()
        looking.memory = self._memory
        return await self.write(text), looking.found, await self.read(query)

    async def hang(self) -> object:
        self._block.llm = Silent()
        return await self._block.aput([ChatMessage(role="user", content="x")], session_id=self._session)

    async def close(self) -> None:
        pass


class Silent(MockLLM):
    """A model that does not answer."""

    async def achat(self, messages: Any, **kwargs: Any) -> Any:
        await asyncio.Event().wait()


class Looking(MockLLM):
    """A model that reads a memory before the reply."""

    memory: Any = None
    found: list[Any] = Field(default_factory=list)

    async def achat(self, messages: Any, **kwargs: Any) -> Any:
        self.found.append([message.content for message in await self.memory.aget()])
        fact = "<facts><fact>A dog likes the garden</fact></facts>"
        return ChatResponse(message=ChatMessage(role="assistant", content=fact))


class Common(InstrumentorContract, ThreadedContract):
    instrumentor = LlamaIndexInstrumentor
    entry_point = "memtrace_llamaindex"


class TestSync(Common, SynchronousContract):
    @pytest.fixture
    def program(self) -> Callable[[], Rag]:
        return lambda: Rag(asynchronous=False)


class TestAsync(Common, CancelledContract):
    @pytest.fixture
    def program(self) -> Callable[[], Hanging]:
        return lambda: Hanging(asynchronous=True)


class TestMemory(Common, CancelledContract, ReentrantContract):
    test_a_search_reads_its_query = None  # a chat memory is read whole
    test_a_hit_has_the_digest_of_its_write = None  # a block of facts is kept as a list and read as XML

    @pytest.fixture
    def program(self, model: RagModel) -> Callable[[], Conversation]:
        model.echo = "<facts><fact>A cat sleeps on the sofa</fact></facts>"
        return Conversation
