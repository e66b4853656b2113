"""langmem on a scripted model: replies are tool calls of trustcall's extractor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from langchain_openai import ChatOpenAI
from langgraph.func import entrypoint
from langgraph.store.memory import InMemoryStore
from langmem import create_memory_store_manager

from tests.integration.langchain.conftest import Hashed, model, server
from tests.integration.langgraph.conftest import instrumented

__all__ = ["instrumented", "model", "server"]

OWNER = ("memories", "ann")
CONFIG: Any = {"configurable": {"user_id": "ann"}}

Remember = Callable[..., Any]


def remembers(*facts: str) -> dict[str, Any]:
    """A reply that stores these facts."""
    return {"calls": [["Memory", {"content": fact}] for fact in facts]}


def patches(id: str, text: str) -> dict[str, Any]:
    """A reply that updates one memory."""
    change = {"op": "replace", "path": "/content", "value": text}
    return {"calls": [["PatchDoc", {"json_doc_id": id, "planned_edits": "it changed", "patches": [change]}]]}


def removes(id: str) -> dict[str, Any]:
    """A reply that removes one memory."""
    return {"calls": [["RemoveDoc", {"json_doc_id": id}]]}


@pytest.fixture
def memory() -> InMemoryStore:
    return InMemoryStore(index={"embed": Hashed(), "dims": 64})


@pytest.fixture
def manager(model: ChatOpenAI) -> Any:
    return create_memory_store_manager(model, namespace=("memories", "{user_id}"), enable_deletes=True)


@pytest.fixture
def remember(manager: Any, memory: InMemoryStore) -> Remember:
    @entrypoint(store=memory)
    def run(messages: list[Any]) -> Any:
        return manager.invoke({"messages": messages}, config=CONFIG)

    return lambda *texts: run.invoke([{"role": "user", "content": text} for text in texts], CONFIG)


@pytest.fixture
def aremember(manager: Any, memory: InMemoryStore) -> Remember:
    @entrypoint(store=memory)
    async def run(messages: list[Any]) -> Any:
        return await manager.ainvoke({"messages": messages}, config=CONFIG)

    return lambda *texts: run.ainvoke([{"role": "user", "content": text} for text in texts], CONFIG)
