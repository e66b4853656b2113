"""The contract of streams for LlamaIndex: query engines and chat engines, generators, threads and tasks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from llama_index.core import VectorStoreIndex
from llama_index.core.chat_engine import CondensePlusContextChatEngine, ContextChatEngine, SimpleChatEngine
from llama_index.core.memory import Memory

from memtrace_otel.instrumentation.llamaindex import LlamaIndexInstrumentor
from tests.harness import StreamedContract
from tests.integration.llamaindex.conftest import RagModel, index_of

SAID = "It sleeps on the red sofa, I think."


class Streaming:
    """Asks an engine over an index."""

    def __init__(self, kind: str, asynchronous: bool) -> None:
        self.kind, self.asynchronous = kind, asynchronous
        self.index: VectorStoreIndex = index_of("The cat sleeps on the red sofa.", "The dog likes the garden.")

    async def stream(self, query: str) -> list[object]:
        if self.kind == "query":
            engine: Any = self.index.as_query_engine(streaming=True, similarity_top_k=1)
            if not self.asynchronous:
                return list(engine.query(query).response_gen)
            response = await engine.aquery(query)
            return [piece async for piece in response.async_response_gen()]
        engine = self.chat_engine()
        if not self.asynchronous:
            return list(engine.stream_chat(query).response_gen)
        response = await engine.astream_chat(query)
        return [piece async for piece in response.async_response_gen()]

    def chat_engine(self) -> Any:
        memory = Memory.from_defaults(session_id="s1", tokenizer_fn=str.split)
        retriever = self.index.as_retriever(similarity_top_k=1)
        if self.kind == "context":
            return ContextChatEngine.from_defaults(retriever, memory=memory)
        if self.kind == "condense":
            return CondensePlusContextChatEngine.from_defaults(retriever, memory=memory)
        return SimpleChatEngine.from_defaults(memory=memory)

    async def close(self) -> None:
        pass


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
@pytest.mark.parametrize("kind", ["query", "simple", "context", "condense"])
class TestStreams(StreamedContract):
    instrumentor = LlamaIndexInstrumentor

    @pytest.fixture
    def program(self, kind: str, asynchronous: bool, model: RagModel) -> Callable[[], Streaming]:
        model.echo = SAID
        return lambda: Streaming(kind, asynchronous)
