"""Agents with tools: each message of a turn is one variable in the prompt and in the thread."""

from __future__ import annotations

import json
from typing import Any

import pytest
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_core.tools import BaseTool, tool
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode, tools_condition

from memtrace_otel.model import OperationSpan
from tests.conftest import Recording
from tests.integration.langchain.conftest import ChatStub, Hashed, contents, graph_of, kinds
from tests.integration.langgraph.conftest import SlowSaver

pytestmark = pytest.mark.usefixtures("instrumented", "content_on")

REX = "Rex lives in Porto, in a blue house by the river."


@tool
def order(q: str) -> str:
    """The state of an order."""
    return "The order has shipped."


@tool
def lookup(q: str) -> str:
    """Search the notes."""
    notes = InMemoryVectorStore(Hashed())
    notes.add_texts([REX], ids=["r"])
    return "Found: " + "\n".join(document.page_content for document in notes.similarity_search(q, k=1))


def calls(name: str, q: str) -> str:
    return json.dumps({"calls": [[name, {"q": q}]]})


def agent_of(model: Any, tools: list[BaseTool], *, streams: bool = False, slow: bool = False) -> Any:
    bound = model.bind_tools(tools)

    def answer(state: MessagesState) -> Any:
        if not streams:
            return {"messages": [bound.invoke(state["messages"])]}
        first, *others = bound.stream(state["messages"])
        return {"messages": [sum(others, first)]}

    graph = StateGraph(MessagesState).add_node("agent", answer).add_node("tools", ToolNode(tools))
    graph.add_edge(START, "agent").add_conditional_edges("agent", tools_condition).add_edge("tools", "agent")
    return graph.compile(checkpointer=SlowSaver() if slow else InMemorySaver())


def say(recording: Recording, agent: Any, text: str, thread: str = "ann") -> list[Any]:
    with recording.tracer.start_as_current_span("turn"):
        return agent.invoke({"messages": [("user", text)]}, {"configurable": {"thread_id": thread}})["messages"]


def roots(operations: list[OperationSpan], kind: str) -> set[str]:
    return {v.ref for op in operations for v in op.inputs if v.ref.startswith(f"{kind}:") and not v.origin}


def sources(operations: list[OperationSpan], ref: str) -> set[tuple[str, str]]:
    """Refs and origins of the sources of the first version of a record."""
    stored = next(op for op in operations if ref in [v.ref for v in op.outputs])
    at = [v.ref for v in stored.outputs].index(ref)
    return {(stored.inputs[i].ref, stored.inputs[i].origin) for i, o in stored.flow if o == at}


@pytest.mark.parametrize("slow", [False, True])
@pytest.mark.parametrize("streams", [False, True])
def test_equal_tool_results_have_the_names_of_the_thread(
    streams: bool, slow: bool, model: ChatOpenAI, server: ChatStub, recording: Recording
) -> None:
    agent = agent_of(model, [order], streams=streams, slow=slow)
    server.script = [calls("order", "it"), "It shipped.", calls("order", "it"), "It still has."]
    say(recording, agent, "Where is my order?")
    said = say(recording, agent, "Where is my order?")
    given = {f"message:{m.id}" for m in said if m.type in ("human", "tool")}
    assert len(given) == 4
    assert roots(kinds(recording, "create"), "message") == given
    assert roots(kinds(recording, "respond"), "message") <= given  # where the thread is not written as far as that


@pytest.mark.parametrize("slow", [False, True])
def test_the_question_of_a_turn_has_one_name(
    slow: bool, model: ChatOpenAI, server: ChatStub, recording: Recording
) -> None:
    agent = agent_of(model, [order], slow=slow)
    server.script = [calls("order", "it"), "It shipped.", calls("order", "it"), "It still has."]
    say(recording, agent, "Where is my order?")
    said = say(recording, agent, "Where is my order?")
    asked = [m.id for m in said if isinstance(m, HumanMessage)]
    assert roots(kinds(recording, "respond"), "query") == {f"query:ann/{id}" for id in asked}


@pytest.mark.parametrize(("kind", "streams"), [("openai", False), ("openai", True), ("fake", False)])
def test_a_reply_that_calls_tools_is_stored_from_that_reply(
    kind: str, streams: bool, model: ChatOpenAI, server: ChatStub, recording: Recording
) -> None:
    class Fake(GenericFakeChatModel):
        def bind_tools(self, tools: Any, **options: Any) -> Any:
            return self

    call: Any = {"name": "order", "args": {"q": "it"}, "id": "call-1"}
    fake = Fake(messages=iter([AIMessage("Let me look.", tool_calls=[call]), AIMessage("It shipped.")]))
    server.script = [calls("order", "it"), "It shipped."]
    said = say(recording, agent_of(fake if kind == "fake" else model, [order], streams=streams), "Where is my order?")
    first, second = kinds(recording, "respond")
    replies = [m for m in said if isinstance(m, AIMessage)]
    for answered, message in zip((first, second), replies, strict=True):
        assert sources(kinds(recording, "create"), f"state:ann/{message.id}") == {
            (v.ref, answered.origin) for v in answered.outputs
        }
    assert not [v for v in second.inputs if v.ref.startswith("message:lc_run") or v.ref.startswith("message:run")]


@pytest.mark.parametrize("slow", [False, True])
def test_a_stored_tool_result_has_its_search_as_source(
    slow: bool, model: ChatOpenAI, server: ChatStub, recording: Recording
) -> None:
    agent = agent_of(model, [lookup, order], slow=slow)
    both = json.dumps({"calls": [["lookup", {"q": "Where is Rex?"}], ["order", {"q": "it"}]]})
    server.script = [both, "In Porto.", "Blue."]
    say(recording, agent, "Where does he live?")
    said = say(recording, agent, "In which kind of house?")
    found, other = [m for m in said if isinstance(m, ToolMessage)]
    (searched,) = [op for op in kinds(recording, "retrieve") if op.system == "langchain"]
    created = kinds(recording, "create")
    assert sources(created, f"state:ann/{found.id}") == {(v.ref, searched.origin) for v in searched.outputs}
    assert sources(created, f"state:ann/{other.id}") == {(f"message:{other.id}", "")}
    assert f"message:{found.id}" not in roots(kinds(recording, "respond"), "message")
    *_, answer = kinds(recording, "respond")
    graph = graph_of(recording)
    assert contents(graph, answer.origin, "query") == {"In which kind of house?"}
    assert REX in contents(graph, answer.origin, "chunk")


def test_messages_without_ids_are_named_by_their_call(
    model: ChatOpenAI, server: ChatStub, recording: Recording
) -> None:
    def answer(state: MessagesState) -> Any:
        result = ToolMessage(order.invoke({"q": "it"}), tool_call_id="c1")
        call = AIMessage("", tool_calls=[{"name": "order", "args": {}, "id": "c1"}])
        return {"messages": [model.invoke([*state["messages"], call, result])]}

    graph = StateGraph(MessagesState).add_node("answer", answer).add_edge(START, "answer")
    agent = graph.compile(checkpointer=InMemorySaver())
    for text in ("Where is it?", "And now?"):
        say(recording, agent, text)
    one, another = (
        {v.ref for v in op.inputs if v.content == "The order has shipped."} for op in kinds(recording, "respond")
    )
    assert len(one) == len(another) == 1
    assert one.isdisjoint(another)
