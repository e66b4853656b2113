"""Mem0 under the contract of instrumentors, fault injection included."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import mem0.memory.main as main
import pytest

from memtrace_otel.instrumentation.mem0 import Mem0Instrumentor
from memtrace_otel.testing import InstrumentorContract, ThreadedContract
from tests.integration.mem0.conftest import IS_V1, config, serialise
from tests.integration.model_stub import ModelStub

_OPENING = threading.RLock()  # Mem0 1.0.0 locks the folder of its statistics while it is being made
_VOLATILE = frozenset({"id", "created_at", "updated_at"})


class Notebook:
    """A program that notes what it is told and looks it up."""

    def __init__(self, kind: str, configuration: dict[str, Any], model: ModelStub) -> None:
        self.kind, self.configuration, self.model = kind, configuration, model
        self.memory: Any = None

    async def call(self, method: str, *args: Any, **kwargs: Any) -> Any:
        if self.memory is None:
            with _OPENING:
                memory = getattr(main, self.kind).from_config(self.configuration)
                self.memory = await memory if inspect.isawaitable(memory) else memory
                serialise(self.memory)
        result = getattr(self.memory, method)(*args, **kwargs)
        return await result if inspect.isawaitable(result) else result

    async def write(self, text: str) -> object:
        return plain(await self.call("add", text, user_id="ann"))

    async def read(self, query: str) -> object:
        owner = {"user_id": "ann"} if IS_V1 else {"filters": {"user_id": "ann"}}
        return plain(await self.call("search", query, **owner))

    async def fail(self) -> object:
        return await self.call("get_all")

    async def close(self) -> None:
        if self.memory is not None:
            self.memory.vector_store.client.close()


class AsyncNotebook(Notebook):
    async def hang(self) -> object:
        released = asyncio.Event()

        async def waiting(*args: Any, **kwargs: Any) -> Any:
            await released.wait()

        await self.call("add", "I like tea.", user_id="ann")
        self.memory._search_vector_store = waiting
        return await self.read("What do I like?")


def plain(value: Any) -> Any:
    """A result without what differs from run to run."""
    if isinstance(value, dict):
        return {key: plain(inner) for key, inner in value.items() if key not in _VOLATILE}
    return [plain(inner) for inner in value] if isinstance(value, list) else value


class TestMemory(ThreadedContract, InstrumentorContract):
    instrumentor = Mem0Instrumentor
    entry_point = "memtrace_mem0"
    cancellable = False
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


class TestAsyncMemory(InstrumentorContract):
    instrumentor = Mem0Instrumentor
    entry_point = "memtrace_mem0"
    kind = "AsyncMemory"
    notebook = AsyncNotebook
    program = TestMemory.program
