"""Parallel nodes: each message of a thread has the answer of its own node as source."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, BaseMessage, HumanMessage
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph

from memtrace_otel import semconv
from tests.conftest import Recording
from tests.integration.langchain.conftest import kinds

pytestmark = pytest.mark.usefixtures("instrumented", "content_on")

CONFIG: Any = {"configurable": {"thread_id": "t1"}}
NODES = ("left", "right", "third")


class Named(GenericFakeChatModel):
    model: str


def say_it(model: Any, name: str) -> Any:
    """A node that answers with a model."""

    def node(state: MessagesState) -> Any:
        reply: BaseMessage = model.invoke(state["messages"])
        reply.name = name
        return {"messages": [reply]}

    return node


def graph_of_nodes(nodes: dict[str, Any]) -> Any:
    graph = StateGraph(MessagesState)
    for name, node in nodes.items():
        graph.add_node(name, node).add_edge(START, name)
    return graph.compile(checkpointer=InMemorySaver())


def read(recording: Recording, messages: list[Any]) -> dict[str, str]:
    """The model behind the message of each node, by the name of the node."""
    models = {op.origin: str(op.attributes.get(semconv.GEN_AI_REQUEST_MODEL)) for op in kinds(recording, "respond")}
    found: dict[str, str] = {}
    for op in kinds(recording, "create"):
        for at, output in enumerate(op.outputs):
            message = next(m for m in messages if output.ref == f"state:t1/{m.id}")
            if message.type == "ai":
                (source,) = [op.inputs[i] for i, o in op.flow if o == at] if op.flow else op.inputs
                found[message.name] = models[source.origin]
    return found


@pytest.mark.parametrize("traced", [True, False])
def test_equal_replies_of_parallel_nodes_are_separate(traced: bool, recording: Recording) -> None:
    nodes = {
        name: say_it(Named(model=name, messages=iter([AIMessage("Noted."), AIMessage("Noted.")])), name)
        for name in NODES
    }
    graph = graph_of_nodes(nodes)
    for text in ("I live in Paris.", "I have a dog."):
        if traced:
            with recording.tracer.start_as_current_span("turn"):
                said = graph.invoke({"messages": [HumanMessage(text)]}, CONFIG)["messages"]
        else:
            said = graph.invoke({"messages": [HumanMessage(text)]}, CONFIG)["messages"]
        assert read(recording, said) == {name: name for name in NODES}
    assert not any("inferred" in op.incomplete for op in kinds(recording, "create"))
