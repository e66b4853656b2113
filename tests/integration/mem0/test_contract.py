"""The contract of instrumentors for Mem0, with fault injection."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import mem0.memory.main as main
import pytest

from memtrace_otel.instrumentation.mem0 import Mem0Instrumentor
from tests.harness import (
    CancelledContract,
    InstrumentorContract,
    ReentrantContract,
    SynchronousContract,
    ThreadedContract,
)
from tests.integration.mem0.conftest import IS_V1, config, serialise
from tests.integration.model_stub import ModelStub

_OPENING = threading.RLock()  # Mem0 1.0.0 locks the folder of its statistics during creation
_VOLATILE = frozenset({"id", "memory_id", "user_id", "created_at", "updated_at"})
_numbers = count()


class Notebook:
    """A program that stores texts and searches them."""

    def __init__(self, kind: str, configuration: dict[str, Any], model: ModelStub) -> None:
        self.kind, self.configuration, self.model = kind, configuration, model
        self.memory: Any = None
        self.user = f"ann{next(_numbers)}"
        self.owner: dict[str, Any] = {"user_id": self.user} if IS_V1 else {"filters": {"user_id": self.user}}

    async def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        if self.memory is None:
            with _OPENING:
                memory = getattr(main, self.kind).from_config(self.configuration)
                self.memory = await memory if inspect.isawaitable(memory) else memory
                serialise(self.memory)
        result = getattr(self.memory, method)(*args, **kwargs)
        return await result if inspect.isawaitable(result) else result

    async def write(self, text: str) -> object:
        return plain(await self.call("add", text, user_id=self.user))

    async def read(self, query: str) -> object:
        return plain(await self.call("search", query, **self.owner))

    async def fail(self) -> object:
        return await self.call("get_all")

    async def close(self) -> None:
        if self.memory is not None:
            self.memory.vector_store.client.close()

    async def explore(self) -> object:
        """Everything that Mem0 does besides, on memories written as they are: those in words of a model come and go."""
        self.memory.reranker = Reverse()
        said = [{"role": "user", "content": "I ride a bike."}, {"role": "assistant", "content": "Good."}]
        seen = [await self.call("add", said, user_id=self.user, infer=False)]
        one = seen[0]["results"][0]["id"]
        seen += [
            await self.call("update", one, data="I ride a horse."),
            await self.call("get", one),
            sorted(item["memory"] for item in (await self.call("get_all", **self.owner))["results"]),
            await self.call("search", "What do I ride?", **self.owner, rerank=True),
            await self.call("history", one),
            await self.call("delete", one),
            await self.call("delete_all", user_id=self.user),
        ]
        steps = {"agent_id": "bot", "memory_type": "procedural_memory"}
        seen += [await self.call("add", said, **steps), await self.call("reset")]
        return plain(seen)

    async def reenter(self, text: str, query: str) -> object:
        """The embedder searches once before the text to store is embedded."""
        await self.call("get_all", **self.owner)
        embed, found = self.memory.embedding_model.embed, list[object]()

        def embedding(given: Any, *args: Any, **kwargs: Any) -> Any:
            if not found:
                found.append(None)
                found[0] = plain(self.memory.search(query, **self.owner))
            return embed(given, *args, **kwargs)

        self.memory.embedding_model.embed = embedding
        return await self.write(text), found


class AsyncNotebook(Notebook):
    async def reenter(self, text: str, query: str) -> object:
        """The embedder runs in a thread of AsyncMemory. The embedder lets the loop search once and waits."""
        await self.call("get_all", **self.owner)
        embed, found, loop = self.memory.embedding_model.embed, list[object](), asyncio.get_running_loop()

        def embedding(given: Any, *args: Any, **kwargs: Any) -> Any:
            if not found and threading.current_thread() is not threading.main_thread():
                found.append(None)
                search = asyncio.run_coroutine_threadsafe(self.memory.search(query, **self.owner), loop)
                found[0] = plain(search.result(20))
            return embed(given, *args, **kwargs)

        self.memory.embedding_model.embed = embedding
        return await self.write(text), found

    async def hang(self) -> object:
        released = asyncio.Event()

        async def waiting(*args: Any, **kwargs: Any) -> Any:
            await released.wait()

        await self.call("add", "I like tea.", user_id=self.user)
        self.memory._search_vector_store = waiting
        return await self.read("What do I like?")


class Reverse:
    """A reranker that knows better."""

    def rerank(self, query: str, documents: list[Any], top_k: int | None = None) -> list[Any]:
        return [{**item, "rerank_score": float(n)} for n, item in enumerate(reversed(documents))]


def plain(value: Any) -> Any:
    """A result without random values and times."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items() if key not in _VOLATILE}
    return [plain(inner) for inner in value] if isinstance(value, list) else value


@pytest.fixture(autouse=True)
def entities(monkeypatch: pytest.MonkeyPatch) -> None:
    """Mem0 2.x finds entities with a language model that is not here."""
    if not IS_V1:
        named = lambda text: [("PROPER", word) for word in ("cat", "dog", "horse") if word in text]  # noqa: E731
        monkeypatch.setattr(main, "extract_entities", named)
        monkeypatch.setattr(main, "extract_entities_batch", lambda texts: [named(text) for text in texts])


class Contract(InstrumentorContract, ThreadedContract, ReentrantContract):
    instrumentor = Mem0Instrumentor
    entry_point = "memtrace_mem0"


class TestMemory(Contract, SynchronousContract):
    kind = "Memory"
    notebook: type[Notebook] = Notebook

    @pytest.fixture
    def program(self, tmp_path: Path) -> Iterator[Any]:
        opened = iter(range(1_000))
        with ModelStub() as model:

            def fresh() -> Notebook:
                folder = tmp_path / str(next(opened))
                folder.mkdir()
                return self.notebook(self.kind, config(model, folder), model)

            yield fresh


class TestAsyncMemory(Contract, CancelledContract):
    kind = "AsyncMemory"
    notebook = AsyncNotebook
    program = TestMemory.program
