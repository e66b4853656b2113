"""The contract of instrumentors for a program that uses all of LlamaIndex: every step meets every fault."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from llama_index.core import Document, QueryBundle, VectorStoreIndex, get_response_synthesizer
from llama_index.core.agent.workflow import ReActAgent
from llama_index.core.base.embeddings.base import BaseEmbedding
from llama_index.core.chat_engine import ContextChatEngine, SimpleChatEngine
from llama_index.core.ingestion import IngestionPipeline
from llama_index.core.llms import ChatMessage, CompletionResponse, CustomLLM, LLMMetadata
from llama_index.core.memory import ChatMemoryBuffer, FactExtractionMemoryBlock, Memory
from llama_index.core.postprocessor import SimilarityPostprocessor
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.vector_stores import SimpleVectorStore, VectorStoreQuery
from llama_index.core.workflow import StartEvent, StopEvent, Workflow, step

from memtrace_otel.instrumentation.llamaindex import LlamaIndexInstrumentor
from tests.harness import (
    CancelledContract,
    InstrumentorContract,
    ReentrantContract,
)
from tests.integration import model_stub
from tests.integration.llamaindex.conftest import splitter

ASKED = 'Thought: I look.\nAction: look_up\nAction Input: {"question": "Which sofa?"}'
RED, BLUE = "The sofa is red.", "The chair is blue."


class Scripted(CustomLLM):
    """A model in this process with replies of facts, tool calls and answers."""

    metadata = property(lambda self: LLMMetadata(context_window=4096))  # pyright: ignore

    def complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> CompletionResponse:
        return CompletionResponse(text=self.reply(prompt))

    def stream_complete(self, prompt: str, formatted: bool = False, **kwargs: Any) -> Any:
        words = self.reply(prompt).split(" ")
        for n in range(len(words)):
            yield CompletionResponse(text=" ".join(words[: n + 1]), delta=words[n] if n == 0 else f" {words[n]}")

    def reply(self, prompt: str) -> str:
        if "<fact>" in prompt:
            return "<facts><fact>A sofa is red</fact></facts>"
        if "Action Input" in prompt:
            return "Thought: I can answer.\nAnswer: It is red." if "I look." in prompt else ASKED
        return "It is red."


class Hashed(BaseEmbedding):
    """Texts with common words are near. `broken` raises, `hangs` waits until it is cancelled, `meanwhile` is called
    before a text is embedded."""

    broken: bool = False
    hangs: bool = False
    meanwhile: Any = None

    def _get_text_embedding(self, text: str) -> list[float]:
        if self.broken:
            raise RuntimeError("no embedding today")
        if self.meanwhile is not None:
            self.meanwhile()
        return model_stub.embedding(text)

    def _get_query_embedding(self, query: str) -> list[float]:
        if self.broken:
            raise RuntimeError("no embedding today")
        return model_stub.embedding(query)

    async def _aget_query_embedding(self, query: str) -> list[float]:
        if self.hangs:
            await asyncio.Event().wait()
        return self._get_query_embedding(query)


class Looking(Workflow):
    """One step that searches."""

    @step
    async def look(self, ev: StartEvent) -> StopEvent:
        return StopEvent(result=texts(await ev.retriever.aretrieve("Which sofa?")))


def texts(found: Any) -> list[str]:
    return [one.node.get_content() for one in found]


class Whole:
    """Stores, changes and deletes in every way; answers by engines, chats, an agent and a workflow."""

    def __init__(self) -> None:
        self.embedding, self.model = Hashed(model_name="hashed"), Scripted()
        self.index = self.index_of()
        self.written = 0

    def index_of(self, *documents: Document) -> VectorStoreIndex:
        return VectorStoreIndex.from_documents(
            list(documents), transformations=[splitter()], embed_model=self.embedding
        )

    async def write(self, text: str) -> object:
        self.written += 1
        self.index.insert(Document(text=text, doc_id=f"d{self.written}"))
        return len(self.index.docstore.docs)

    async def read(self, query: str) -> object:
        return texts(self.retriever().retrieve(query))

    async def fail(self) -> object:
        self.embedding.broken = True
        return self.retriever().retrieve("x")

    async def hang(self) -> object:
        self.embedding.hangs = True
        return await self.retriever().aretrieve("x")

    async def close(self) -> None:
        self.embedding.meanwhile = None

    async def explore(self) -> object:
        return [
            self.change(),
            self.ingest(),
            await self.converse(),
            await self.act(self.index.as_retriever(similarity_top_k=1)),
        ]

    async def reenter(self, text: str, query: str) -> object:
        """The embedder searches once before the text to store is embedded."""
        found: list[object] = []

        def search() -> None:
            self.embedding.meanwhile = None
            found.extend(texts(self.retriever().retrieve(query)))

        self.embedding.meanwhile = search
        return await self.write(text), found

    def retriever(self) -> Any:
        return self.index.as_retriever(similarity_top_k=2)

    def change(self) -> object:
        """Add, change and delete documents and nodes; search, filter and answer."""
        documents = [Document(text=RED, doc_id="red"), Document(text=BLUE, doc_id="blue")]
        index = self.index_of(*documents)
        changed = index.refresh_ref_docs([Document(text=f"{RED} It is old.", doc_id="red"), documents[1]])
        engine = index.as_query_engine(
            llm=self.model, similarity_top_k=2, node_postprocessors=[SimilarityPostprocessor(similarity_cutoff=0.1)]
        )
        found = engine.retrieve(QueryBundle("Which sofa?"))
        seen = [changed, str(engine.query("Which sofa?")), texts(engine.query("Which sofa?").source_nodes)]
        seen.append(str(get_response_synthesizer(llm=self.model).synthesize("Which sofa?", found)))
        index.delete_ref_doc("blue", delete_from_docstore=True)
        return [*seen, sorted(index.ref_doc_info), len(index.docstore.docs)]

    def ingest(self) -> object:
        """A pipeline with a document store, on a vector store that is searched, emptied and cleared without an
        index."""
        store, kept = SimpleVectorStore(), SimpleDocumentStore()
        pipeline = IngestionPipeline(
            transformations=[splitter(), self.embedding], vector_store=store, docstore=kept, disable_cache=True
        )
        documents = [Document(text=RED, doc_id="red"), Document(text=BLUE, doc_id="blue")]
        nodes = [*pipeline.run(documents=documents), *pipeline.run(documents=documents)]
        asked = VectorStoreQuery(query_embedding=self.embedding.get_query_embedding("sofa"), similarity_top_k=1)
        found: Any = store.query(asked)
        store.delete_nodes([nodes[0].node_id])
        kept.delete_document("blue")
        left = len(store.data.embedding_dict)
        store.clear()
        return texts_of(nodes), found.ids == [nodes[0].node_id], left, sorted(kept.docs)

    async def converse(self) -> object:
        """Chats, whole and streamed, on a memory whose old messages become facts."""
        block = FactExtractionMemoryBlock(name="facts", llm=self.model, max_facts=3)
        memory = Memory.from_defaults(
            session_id="s1",
            token_limit=20,
            chat_history_token_ratio=0.5,
            token_flush_size=5,
            tokenizer_fn=str.split,
            memory_blocks=[block],
        )
        engine = ContextChatEngine.from_defaults(self.retriever(), llm=self.model, memory=memory)
        seen = [str(engine.chat("Which sofa?")), list(engine.stream_chat("Is it red?").response_gen)]
        streamed = await engine.astream_chat("Which sofa, then?")
        seen += [[piece async for piece in streamed.async_response_gen()], list(block.facts)]
        await memory.areset()
        seen.append(list(SimpleChatEngine.from_defaults(llm=self.model).stream_chat("Hello.").response_gen))
        buffer = ChatMemoryBuffer.from_defaults(tokenizer_fn=str.split)
        buffer.set([ChatMessage(role="user", content=RED)])
        seen.append([message.content for message in (*buffer.get(), *buffer.get_all())])
        buffer.reset()
        return seen

    async def act(self, retriever: Any) -> object:
        """An agent with a tool, and a workflow."""

        def look_up(question: str) -> str:
            """Look into the notes."""
            return texts(retriever.retrieve(question))[0]

        agent = ReActAgent(tools=[look_up], llm=self.model)
        return str(await agent.run("Which sofa?")), await Looking().run(retriever=retriever)


def texts_of(nodes: Any) -> list[str]:
    return [node.get_content() for node in nodes]


class TestWhole(InstrumentorContract, CancelledContract, ReentrantContract):
    instrumentor = LlamaIndexInstrumentor

    @pytest.fixture
    def program(self) -> Callable[[], Whole]:
        return Whole
