"""The instrumentor contract for LangGraph: stores, and a thread with checkpointed messages."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from langchain_core.messages import AIMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.memory import InMemoryStore
from langgraph.store.sqlite import AsyncSqliteStore

from memtrace_otel.instrumentation.langchain.langgraph import LangGraphInstrumentor
from tests.harness import (
    CancelledContract,
    InstrumentorContract,
    ReentrantContract,
    SynchronousContract,
    ThreadedContract,
)
from tests.integration.langchain.conftest import Hashed

OWNER = ("notes", "ann")


class Notes:
    """Texts in a store with an index."""

    def __init__(self) -> None:
        self.embedding = Hashed()
        self.store: Any = InMemoryStore(index={"embed": self.embedding, "dims": 64})
        self.written = 0

    async def write(self, text: str) -> object:
        self.written += 1
        return self.store.put(OWNER, f"n{self.written}", {"text": text})

    async def read(self, query: str) -> object:
        return [(item.key, item.value, round(item.score, 6)) for item in self.store.search(OWNER, query=query)]

    async def fail(self) -> object:
        self.embedding.broken = True
        return self.store.put(OWNER, "n0", {"text": "never"})

    async def close(self) -> None:
        pass

    async def reenter(self, text: str, query: str) -> object:
        """The embedder searches once before it embeds a stored text."""
        embed, found = self.embedding.embed_documents, list[object]()

        def embedding(texts: list[str]) -> list[list[float]]:
            if not found:
                found.append(None)
                found[0] = [item.key for item in self.store.search(OWNER, query=query)]
            return embed(texts)

        self.embedding.embed_documents = embedding  # the coroutine calls it, too
        return await self.write(text), found


class AsyncNotes(Notes):
    """The same program with coroutines."""

    async def write(self, text: str) -> object:
        self.written += 1
        return await self.store.aput(OWNER, f"n{self.written}", {"text": text})

    async def read(self, query: str) -> object:
        found = await self.store.asearch(OWNER, query=query)
        return [(item.key, item.value, round(item.score, 6)) for item in found]

    async def fail(self) -> object:
        self.embedding.broken = True
        return await self.store.aput(OWNER, "n0", {"text": "never"})

    async def hang(self) -> object:
        self.embedding.hangs = True
        return await self.store.aput(OWNER, "n0", {"text": "never"})


class WholeNotes(AsyncNotes):
    """Every store and the thread of a graph, with all their methods."""

    async def explore(self) -> object:
        queue, thread = QueuedNotes(), AsyncThread()
        try:
            seen = [await queue.write("The sofa is red."), await queue.read("Which sofa?"), await queue.change()]
        finally:
            await queue.close()
        seen += [await thread.write("Hello."), await thread.read("")]
        thread.saver.delete_thread("t1")
        gone = self.store.get(OWNER, "n1"), self.store.delete(OWNER, "n1"), self.store.get(OWNER, "n1")
        return [*seen, await thread.read(""), gone[0].value, gone[1:]]


class QueuedNotes(Notes):
    """A store with its own task, outside the context of the caller."""

    def __init__(self) -> None:
        super().__init__()
        self.store = None

    async def _open(self) -> Any:
        if self.store is None:
            self.context = AsyncSqliteStore.from_conn_string(":memory:")
            self.store = await self.context.__aenter__()
            await self.store.setup()
        return self.store

    async def write(self, text: str) -> object:
        self.written += 1
        return await (await self._open()).aput(OWNER, f"n{self.written}", {"text": text})

    async def read(self, query: str) -> object:
        found = await (await self._open()).asearch(OWNER, query=query)  # newest first, by seconds
        return sorted((item.key, item.value["text"]) for item in found)

    async def change(self) -> object:
        store = await self._open()
        found = await store.aget(OWNER, "n1")
        return found.value, await store.adelete(OWNER, "n1"), await store.aget(OWNER, "n1")

    async def fail(self) -> object:
        return await (await self._open()).aput(OWNER, "n0", {"text": object()})  # no JSON

    async def hang(self) -> object:
        store = await self._open()
        await store.lock.acquire()
        return await store.aput(OWNER, "n0", {"text": "never"})

    async def close(self) -> None:
        if self.store is not None:
            if self.store.lock.locked():
                self.store.lock.release()
            await self.context.__aexit__(None, None, None)


class Thread:
    """A graph with a checkpointed thread."""

    def __init__(self) -> None:
        self.config: Any = {"configurable": {"thread_id": "t1"}}
        self.saver = InMemorySaver()
        graph = StateGraph(MessagesState).add_node("answer", self._answer).add_edge(START, "answer")
        self.graph: Any = graph.compile(checkpointer=self.saver)

    def _answer(self, state: MessagesState) -> Any:
        return {"messages": [AIMessage(f"I have read {len(state['messages'])} messages.")]}

    async def write(self, text: str) -> object:
        state = await self._run(text)
        return [message.content for message in state["messages"]]

    async def read(self, query: str) -> object:
        return [message.content for message in self.graph.get_state(self.config).values.get("messages", ())]

    async def fail(self) -> object:
        checkpoint: Any = {"channel_values": {"messages": [AIMessage("never", id="m0")]}}  # without an id
        return self.saver.put(
            {"configurable": {**self.config["configurable"], "checkpoint_ns": ""}}, checkpoint, {}, {"messages": "1"}
        )

    async def close(self) -> None:
        pass

    async def _run(self, text: str) -> Any:
        return self.graph.invoke({"messages": [("user", text)]}, self.config)


class AsyncThread(Thread):
    """The same program with coroutines."""

    async def _run(self, text: str) -> Any:
        return await self.graph.ainvoke({"messages": [("user", text)]}, self.config)

    async def hang(self) -> object:
        await self.write("before")
        waiting = StateGraph(MessagesState).add_node("wait", self._wait).add_edge(START, "wait")
        return await waiting.compile(checkpointer=self.saver).ainvoke({"messages": [("user", "never")]}, self.config)

    async def _wait(self, state: MessagesState) -> Any:
        await asyncio.Event().wait()


class Contract(InstrumentorContract, ThreadedContract):
    instrumentor = LangGraphInstrumentor
    entry_point = "memtrace_langgraph"


class TestLangGraph(Contract, SynchronousContract):
    @pytest.fixture
    def program(self) -> Callable[[], Any]:
        return Notes


class TestAsyncLangGraph(Contract, CancelledContract):
    @pytest.fixture(params=[AsyncNotes, QueuedNotes], ids=["store", "queued store"])
    def program(self, request: pytest.FixtureRequest) -> Callable[[], Any]:
        return request.param


class TestThread(Contract, SynchronousContract):
    test_a_search_reads_its_query = None  # a thread is read whole

    @pytest.fixture
    def program(self) -> Callable[[], Any]:
        return Thread


class TestAsyncThread(Contract, CancelledContract):
    test_a_search_reads_its_query = None  # a thread is read whole

    @pytest.fixture
    def program(self) -> Callable[[], Any]:
        return AsyncThread


class TestWhole(InstrumentorContract, CancelledContract, ReentrantContract):
    instrumentor = LangGraphInstrumentor

    @pytest.fixture
    def program(self) -> Callable[[], WholeNotes]:
        return WholeNotes
