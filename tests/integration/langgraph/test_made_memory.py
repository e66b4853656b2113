"""Memories and summaries that a program makes with its own model calls: their sources are in the slice of an answer."""

from __future__ import annotations

from typing import Any

import pytest
from langchain_core.messages import AnyMessage, HumanMessage, RemoveMessage, SystemMessage
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.store.memory import InMemoryStore

from tests.conftest import Recording
from tests.integration.langchain.conftest import ChatStub, contents, graph_of, kinds

pytestmark = pytest.mark.usefixtures("instrumented", "content_on")

SUMMARY = "The user is called Ann, she lives in Rome and works in the port, and she has asked how we are."


def test_a_stored_reply_has_the_answer_as_source(model: ChatOpenAI, server: ChatStub, recording: Recording) -> None:
    server.script = ["The user has a dog called Rex.", "The user owns a boat.", "Rex."]
    store, said = InMemoryStore(), "My dog is called Rex and he is two years old."
    for owner, text in (("ann", said), ("bob", "I own a boat.")):
        with recording.tracer.start_as_current_span("turn"):
            fact = model.invoke([SystemMessage("Extract one fact about the user."), HumanMessage(text)]).content
            store.put((owner,), "1", {"text": fact})
    with recording.tracer.start_as_current_span("turn"):
        [known] = store.search(("ann",), query="What is my dog called?")
        model.invoke([SystemMessage(f"Known: {known.value['text']}"), HumanMessage("What is my dog called?")])
    answer, graph = kinds(recording, "respond")[-1], graph_of(recording)
    assert contents(graph, answer.origin, "message") == {said}
    assert contents(graph, answer.origin, "query") == {"What is my dog called?"}


class Summarised(MessagesState):
    summary: str


@pytest.mark.parametrize("summary", [SUMMARY, "Ann lives in Rome."])
@pytest.mark.parametrize("around", ["", "Here is a summary of the conversation so far:\n\n"])
def test_a_summary_has_the_replaced_messages_as_sources(
    around: str, summary: str, model: ChatOpenAI, server: ChatStub, recording: Recording
) -> None:
    def answer(state: Summarised) -> dict[str, Any]:
        known = state.get("summary", "")
        notes: list[AnyMessage] = [SystemMessage(f"Summary of what was said before: {known}")] if known else []
        return {"messages": [model.invoke([*notes, *state["messages"]])]}

    def shorten(state: Summarised) -> dict[str, Any]:
        if len(state["messages"]) <= 5:
            return {}
        summary = str(model.invoke([*state["messages"], HumanMessage("Summarise the conversation above.")]).content)
        dropped: list[Any] = [RemoveMessage(id=str(message.id)) for message in state["messages"][:-2]]
        if around:
            return {"messages": [*dropped, HumanMessage(around + summary, id="summary")]}
        return {"messages": dropped, "summary": summary}

    graph: Any = StateGraph(Summarised)
    graph.add_node("answer", answer).add_node("shorten", shorten)
    graph.add_edge(START, "answer").add_edge("answer", "shorten").add_edge("shorten", END)
    program = graph.compile(checkpointer=InMemorySaver())
    server.script = ["Hello, Ann.", "A nice town.", "We are well.", summary, "In Rome."]
    for text in ("I am Ann.", "I live in Rome.", "How are you?", "Where do I live?"):
        with recording.tracer.start_as_current_span("turn"):
            program.invoke({"messages": [("user", text)]}, {"configurable": {"thread_id": "t"}})
    last = kinds(recording, "respond")[-1]
    behind = contents(graph_of(recording), last.origin, "message")
    assert {"I am Ann.", "I live in Rome."} <= behind
    assert contents(graph_of(recording), last.origin, "query") == {"Where do I live?"}
