"""A store and a checkpointed thread under opentelemetry-instrument."""

from __future__ import annotations

import pytest

from tests.integration.langchain.conftest import ChatStub
from tests.integration.loading import LoadingContract


class TestLangGraph(LoadingContract):
    entry_point = "memtrace_langgraph"
    operations = frozenset({("langgraph", "upsert_memory"), ("langgraph", "search_memory")})
    source = """
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.memory import InMemoryStore

model, store = ChatOpenAI(model="stub"), InMemoryStore()

def answer(state):
    store.put(("users", "ana"), "train", {"text": state["messages"][-1].content})
    known = store.search(("users", "ana"))[0].value["text"]
    return {"messages": [model.invoke([("system", known), *state["messages"]])]}

graph = StateGraph(MessagesState).add_node("answer", answer).add_edge(START, "answer")
agent = graph.compile(checkpointer=InMemorySaver())
for said in ("My train leaves on Friday.", "My train leaves on Saturday."):
    agent.invoke({"messages": [("user", said)]}, {"configurable": {"thread_id": "t1"}})
print("done")
"""

    @pytest.fixture
    def url(self, server: ChatStub) -> str:
        return server.url
