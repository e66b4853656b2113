"""The contract of instrumentors for an application with EverOS inside."""

from __future__ import annotations

import asyncio
import importlib
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from memtrace_otel.instrumentation.everos import EverosInstrumentor
from tests.harness import (
    CancelledContract,
    InstrumentorContract,
    ReentrantContract,
    ThreadedContract,
)
from tests.integration.everos.host import Everos
from tests.integration.everos.models import EverosModels


@pytest.fixture(scope="module")
def everos(models: EverosModels, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Everos]:
    """Without profiles: EverOS makes a profile only when the index is up to date, so runs would differ."""
    folder = tmp_path_factory.mktemp("everos") / "store"
    with Everos(folder, models, off=("extract_user_profile", "extract_foresight")) as everos:
        yield everos


class Diary:
    """A user who tells EverOS one message per session, and searches."""

    def __init__(self, everos: Everos) -> None:
        self.everos, self.memory = everos, everos.memory()
        self.told = 0

    async def write(self, text: str) -> object:
        self.told += 1
        session = f"{self.memory.user}-{self.told}"
        added = await self.memory.add(text, "> I see.", session=session)
        flushed = await self.memory.flush(session)
        await self.everos.settled()
        return added, flushed

    async def read(self, query: str) -> object:
        found = await self.memory.search(query)
        return [
            (episode["episode"].replace(self.memory.user.title(), "Ann"), len(episode["atomic_facts"]))
            for episode in found["episodes"]
        ]

    async def fail(self) -> object:
        self.everos.models.by_kind["boundary"] = [500] * 20
        try:
            return await self.memory.add("This fails.", "> Indeed.")
        finally:
            self.everos.models.by_kind.clear()

    async def reenter(self, text: str, query: str) -> object:
        """The model searches once before the reply with the end of an episode."""
        model: Any = importlib.import_module("everos.component.llm").get_llm_client()
        chat, found = model.chat, list[object]()

        async def asking(*args: Any, **kwargs: Any) -> Any:
            if not found:
                found.append(None)
                found[0] = await self.read(query)
            return await chat(*args, **kwargs)

        model.chat = asking
        try:
            return await self.write(text), found
        finally:
            del model.chat

    async def hang(self) -> object:
        self.everos.models.stall.clear()
        try:
            return await self.memory.add("This hangs.", "> Indeed.")
        finally:
            self.everos.models.stall.set()

    async def close(self) -> None:
        await self.everos.settled()


class TestEveros(InstrumentorContract, CancelledContract, ThreadedContract, ReentrantContract):
    instrumentor = EverosInstrumentor
    entry_point = "memtrace_everos"
    goes_on = True
    test_a_fault_in_every_step_changes_no_result = None  # in test_harmless.py, where EverOS does more
    test_a_fault_in_every_function_changes_no_result = None

    @pytest.fixture
    def program(self, everos: Everos, no_token_counts: None) -> Iterator[Callable[[], Diary]]:
        yield lambda: Diary(everos)
        asyncio.run(everos.settled())
