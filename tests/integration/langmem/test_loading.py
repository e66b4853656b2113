"""Memories extracted from a conversation under opentelemetry-instrument."""

from __future__ import annotations

from typing import Any

import pytest

from tests.integration.langchain.conftest import ChatStub
from tests.integration.langmem.conftest import remembers
from tests.integration.loading import LoadingContract


class TestLangMem(LoadingContract):
    entry_point = "memtrace_langmem"
    operations = frozenset({("langmem", "memtrace.decide")})
    source = """
from langchain_openai import ChatOpenAI
from langgraph.func import entrypoint
from langgraph.store.memory import InMemoryStore
from langmem import create_memory_store_manager

store, config = InMemoryStore(), {"configurable": {"user": "ana"}}
manager = create_memory_store_manager(ChatOpenAI(model="stub"), namespace=("memories", "{user}"))

@entrypoint(store=store)
def remember(text):
    return len(manager.invoke({"messages": [{"role": "user", "content": text}]}, config=config))

assert remember.invoke("I live in Lisbon.", config) == 1
print("done")
"""

    @pytest.fixture
    def url(self, server: ChatStub) -> str:
        replies: list[Any] = [remembers("Lives in Lisbon.")]
        server.script = replies
        return server.url
