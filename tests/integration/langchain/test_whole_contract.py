"""The instrumentor contract for all of LangChain: every hook meets every fault."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import pytest
from langchain_chroma import Chroma
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.retrievers import BaseRetriever
from langchain_core.runnables import RunnableLambda
from langchain_core.tools import tool

from memtrace_otel.instrumentation.langchain import LangChainInstrumentor
from tests.harness import (
    CancelledContract,
    InstrumentorContract,
    ReentrantContract,
    SynchronousContract,
)
from tests.integration.langchain.conftest import Notes
from tests.integration.langchain.test_contract import AsyncRag, Rag, chroma

PROMPT = ChatPromptTemplate.from_template("Notes: {context}\nQuestion: {question}")
_numbers = itertools.count()


class Shortest(BaseDocumentCompressor):
    """Keeps the shortest text."""

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Any = None
    ) -> Sequence[Document]:
        return sorted(documents, key=lambda document: len(document.page_content))[:1]


class First(BaseRetriever):
    """A retriever that overrides `invoke`, like the ensemble retriever of LangChain."""

    retriever: BaseRetriever

    def _get_relevant_documents(self, query: str, *, run_manager: Any) -> list[Document]:
        raise NotImplementedError

    def invoke(self, input: str, config: Any = None, **kwargs: Any) -> list[Document]:
        return self.retriever.invoke(input)[:1]

    async def ainvoke(self, input: str, config: Any = None, **kwargs: Any) -> list[Document]:
        return (await self.retriever.ainvoke(input))[:1]


def scripted() -> GenericFakeChatModel:
    return GenericFakeChatModel(messages=itertools.repeat("It is red."))  # pyright: ignore[reportArgumentType]


def broken(asked: object) -> str:
    raise RuntimeError("no chain today")


class Whole(Rag):
    """Loads, makes a store, changes and empties it; asks by chains, tools and rerankers."""

    def __init__(self) -> None:
        super().__init__(chroma)

    async def explore(self) -> object:
        loader = Notes(red="The sofa is red.", blue="The chair is blue.")
        texts = [document.page_content for document in (*loader.load(), *loader.lazy_load())]
        made = Chroma.from_texts(texts[:2], self.embedding, ids=["red", "blue"], collection_name=self._name())
        made.update_document("red", Document("The sofa is green.", metadata={"source": "red"}))
        retriever = made.as_retriever(search_kwargs={"k": 2})

        @tool
        def look_up(question: str) -> str:
            """Look into the notes."""
            found = Shortest().compress_documents(retriever.invoke(question), question)
            return found[0].page_content

        chain = {"context": look_up, "question": lambda asked: asked} | PROMPT | scripted() | StrOutputParser()
        seen = [chain.invoke("Which sofa?"), list(chain.stream("Which sofa?")), look_up.invoke("Which chair?")]
        seen.append([found.page_content for found in First(retriever=retriever).invoke("Which chair?")])
        with pytest.raises(RuntimeError, match="no chain today"):
            RunnableLambda(broken).invoke("Which sofa?")
        made.delete(["red"])
        seen.append(sorted(made.get()["documents"]))
        made.delete_collection()
        return texts, seen

    async def reenter(self, text: str, query: str) -> object:
        """The embedder searches once before it embeds a stored text."""
        embed, found = self.embedding.embed_documents, list[object]()

        def embedding(texts: list[str]) -> list[list[float]]:
            if not found:
                found.append(None)
                found[0] = [document.page_content for document in self.store.similarity_search(query, k=1)]
            return embed(texts)

        self.embedding.embed_documents = embedding
        return await self.write(text), found

    def _name(self) -> str:
        return f"whole-{next(_numbers)}"


class AsyncWhole(AsyncRag, Whole):
    """The same program with coroutines."""

    async def explore(self) -> object:
        loader = Notes(red="The sofa is red.", blue="The chair is blue.")
        documents = [*await loader.aload(), *[document async for document in loader.alazy_load()]]
        texts = [document.page_content for document in documents]
        ids = ["red", "blue"]
        made = await Chroma.afrom_texts(texts[:2], self.embedding, ids=ids, collection_name=self._name())
        made.update_document("red", Document("The sofa is green.", metadata={"source": "red"}))
        retriever = made.as_retriever(search_kwargs={"k": 2})

        @tool
        async def look_up(question: str) -> str:
            """Look into the notes."""
            found = await Shortest().acompress_documents(await retriever.ainvoke(question), question)
            return found[0].page_content

        chain = {"context": look_up, "question": lambda asked: asked} | PROMPT | scripted() | StrOutputParser()
        streamed = [piece async for piece in chain.astream("Which sofa?")]
        seen = [await chain.ainvoke("Which sofa?"), streamed, await look_up.ainvoke("Which chair?")]
        seen.append([found.page_content for found in await First(retriever=retriever).ainvoke("Which chair?")])
        with pytest.raises(RuntimeError, match="no chain today"):
            await RunnableLambda(broken).ainvoke("Which sofa?")
        await made.adelete(["red"])
        seen.append(sorted(made.get()["documents"]))
        made.delete_collection()
        return texts, seen


class Contract(InstrumentorContract, ReentrantContract):
    instrumentor = LangChainInstrumentor


class TestWhole(Contract, SynchronousContract):
    @pytest.fixture
    def program(self) -> Callable[[], Whole]:
        return Whole


class TestAsyncWhole(Contract, CancelledContract):
    @pytest.fixture
    def program(self) -> Callable[[], AsyncWhole]:
        return AsyncWhole
