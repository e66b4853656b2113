"""Model calls in the nodes of a graph: a checkpointed thread is their history, and has one record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from langchain_core.language_models import GenericFakeChatModel
from langchain_core.messages import AIMessage, HumanMessage, ToolMessage
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.graph import START, MessagesState, StateGraph

from memtrace_otel.instrumentation.chat_history.history import asked_last
from memtrace_otel.instrumentation.langchain.langgraph import LangGraphInstrumentor
from memtrace_otel.instrumentation.langchain.langgraph.state import aligned
from memtrace_otel.instrumentation.langchain.langgraph.threads import Held, entries_of
from memtrace_otel.instrumentation.langchain.messages import message_of
from memtrace_otel.model import OperationSpan
from tests.conftest import Recording
from tests.integration.langchain.conftest import ChatStub, contents, graph_of, kinds, operations

pytestmark = pytest.mark.usefixtures("instrumented", "content_on")

CONFIG: Any = {"configurable": {"thread_id": "t1"}}
SAID = ["I live in Paris.", "ok", "Where is it that I live?"]  # "ok" is too short to be found as a text
REPLIES = ["Noted.", "Noted.", "In Paris."]


def answering(model: Any) -> Any:
    return lambda state: {"messages": [model.invoke(state["messages"])]}


def graph_with(node: Any, saver: Any = None) -> Any:
    return StateGraph(MessagesState).add_node("answer", node).add_edge(START, "answer").compile(checkpointer=saver)


def say(graph: Any, texts: list[str] = SAID) -> None:
    for number, text in enumerate(texts):
        graph.invoke({"messages": [HumanMessage(text, id=f"h{number}")]}, CONFIG)


def states(answer: OperationSpan) -> list[str]:
    return sorted(v.ref for v in answer.inputs if v.ref.startswith("state:"))


def check(recording: Recording) -> None:
    """The last answer reads each earlier message as the version of the thread."""
    assert {op.system for op in operations(recording)} <= {"openai", "langchain", "langgraph"}
    writers = {v.ref: op.origin for op in kinds(recording, "create") for v in op.outputs}
    assert len(writers) == 2 * len(SAID)
    *_, answer = kinds(recording, "respond")
    asked = f"state:t1/h{len(SAID) - 1}"
    assert states(answer) == sorted(list(writers)[:-2])
    assert asked not in states(answer)
    assert all(v.origin == writers[v.ref] for v in answer.inputs if v.ref in writers)
    graph = graph_of(recording)
    assert contents(graph, answer.origin, "query") == {SAID[-1]}
    assert contents(graph, answer.origin, "message") == set(SAID[:-1])


@pytest.mark.parametrize("kind", ["openai", "fake"])
@pytest.mark.parametrize("saved", ["in memory", "sqlite"])
def test_a_thread_has_one_record(
    saved: str, kind: str, model: ChatOpenAI, server: ChatStub, recording: Recording, tmp_path: Path
) -> None:
    server.script = list(REPLIES)
    chat = model if kind == "openai" else GenericFakeChatModel(messages=iter(map(AIMessage, REPLIES)))
    if saved == "sqlite":
        with SqliteSaver.from_conn_string(str(tmp_path / "threads.sqlite")) as saver:
            say(graph_with(answering(chat), saver))
    else:
        say(graph_with(answering(chat), InMemorySaver()))
    check(recording)


def test_a_message_outside_the_thread_is_a_message_input(model: ChatOpenAI, recording: Recording) -> None:
    def answer(state: MessagesState) -> Any:
        call = AIMessage("", tool_calls=[{"name": "look", "args": {}, "id": "c1"}])
        looked = ToolMessage("It rains in Paris.", tool_call_id="c1")
        return {"messages": [model.invoke([*state["messages"], call, looked])]}

    say(graph_with(answer, InMemorySaver()), ["I live in Paris.", "How is the weather?"])
    assert {op.kind for op in operations(recording)} == {"create", "retrieve", "respond"}
    for answer_ in kinds(recording, "respond"):
        history = {v.content for v in answer_.inputs if v.ref.startswith("message:")}
        assert "It rains in Paris." in history


def test_a_run_from_an_older_checkpoint_reads_its_versions(
    model: ChatOpenAI, server: ChatStub, recording: Recording
) -> None:
    server.script = ["First.", "Second.", "Third."]
    graph = graph_with(answering(model), InMemorySaver())
    say(graph, ["I live in Paris."])
    older = graph.get_state(CONFIG).config
    say(graph, ["I live in Paris.", "What is new?"][1:])
    graph.invoke({"messages": [HumanMessage("Once more?", id="h9")]}, older)
    *_, answer = kinds(recording, "respond")
    assert len(states(answer)) == 2
    assert contents(graph_of(recording), answer.origin, "message") == {"I live in Paris."}


def test_a_subgraph_reads_the_thread_of_its_graph(model: ChatOpenAI, server: ChatStub, recording: Recording) -> None:
    def reflect(state: MessagesState) -> Any:
        private: list[Any] = [("user", "What do you think of it?")]
        private += [model.invoke(private), ("user", "And why is that?")]
        model.invoke(private)
        return {"messages": [model.invoke(state["messages"])]}

    server.script = ["A fine thing.", "It is blue.", "Noted.", "A fine one.", "It is green.", "In Paris."]
    say(graph_with(graph_with(reflect), InMemorySaver()), ["I live in Paris.", "Where is it that I live?"])
    *_, answer = kinds(recording, "respond")
    assert len(states(answer)) == 2
    assert all(ref.startswith("state:t1/") for ref in states(answer))
    assert [op.system for op in operations(recording)].count("long_context") == 2


def test_without_a_thread_the_history_is_the_conversation(
    model: ChatOpenAI, server: ChatStub, recording: Recording
) -> None:
    server.script = ["Noted.", "In Paris.", "It is a town."]
    graph = graph_with(answering(model), InMemorySaver())
    say(graph, ["I live in Paris."])
    talk: list[Any] = [("user", "Where is it that Ann lives?")]
    talk += [model.invoke(talk), ("user", "What is that?")]
    model.invoke(talk)
    assert [op.system for op in operations(recording)].count("long_context") == 1

    LangGraphInstrumentor().uninstrument()
    server.script = ["Noted.", "In Rome."]
    config: Any = {"configurable": {"thread_id": "t2"}}
    for text in ("I live in Rome.", "Where is it that I live?"):
        graph.invoke({"messages": [HumanMessage(text)]}, config)
    assert [op.system for op in operations(recording)].count("long_context") == 2


USED: Any = {"name": "search", "args": {"q": "thé"}, "id": "c1"}
TEA = [
    HumanMessage("What tea?", id="u1"),
    AIMessage("Let me look.", id="a1", tool_calls=[USED]),
    ToolMessage("green", tool_call_id="c1", id="t1"),
    AIMessage([{"type": "text", "text": "Green"}, {"type": "text", "text": "tea."}], id="a2"),
    HumanMessage("yes", id="u2"),
    AIMessage("yes", id="a3"),
    HumanMessage("More?", id="u3"),
]


def found(prompt: list[Any], thread: list[Any] = TEA, *, ids: bool = True, **texts: str) -> list[str]:
    """The thread ref of each message of a prompt, '' for none."""
    values = {"messages": thread, **texts}
    held = {e.ref: Held(e.channel, e.key, "o", e.said) for e in entries_of("t", values).values()}
    said = [message_of(m if ids else m.model_copy(update={"id": None})) for m in prompt]
    refs = aligned(said, held, "t")
    asked = asked_last(said)
    return ["" if place == asked else refs.get(place, "").removeprefix("state:t/") for place in range(len(prompt))]


def test_ids_separate_equal_messages() -> None:
    same = [HumanMessage("ok", id=f"u{number}") for number in range(4)]
    assert found([same[0], same[2], same[3]], same) == ["u0", "u2", ""]
    assert found([same[0], HumanMessage("ok", id="another"), same[3]], same) == ["u0", "", ""]
    assert found([same[2].model_copy(update={"content": "cleared"}), same[3]], same) == ["", ""]


def test_a_repeated_question_is_not_the_earlier_question() -> None:
    thread = [HumanMessage("yes", id="u1"), AIMessage("ok", id="a1"), HumanMessage("yes", id="u2")]
    assert found(thread, thread, ids=False) == ["u1", "a1", ""]
