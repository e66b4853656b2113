"""Threads of checkpointers: added, changed and removed messages, and the history of an answer."""

from __future__ import annotations

import functools
import itertools
from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, HumanMessage, RemoveMessage
from langchain_openai import ChatOpenAI
from langgraph import channels
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.sqlite import SqliteSaver
from langgraph.checkpoint.sqlite.aio import AsyncSqliteSaver
from langgraph.func import entrypoint
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.graph.message import add_messages

from tests.conftest import Recording
from tests.integration.langchain.conftest import ChatStub, contents, graph_of, kinds, operations

pytestmark = pytest.mark.usefixtures("instrumented", "content_on")

CONFIG: Any = {"configurable": {"thread_id": "t1"}}


class Summarised(MessagesState):
    summary: str


class Plain(TypedDict):
    """Messages without a reducer, so without ids."""

    messages: list[Any]


def compiled(node: Any, saver: Any, state: Any = MessagesState) -> Any:
    return StateGraph(state).add_node("answer", node).add_edge(START, "answer").compile(checkpointer=saver)


def say(graph: Any, text: str, id: str) -> None:
    graph.invoke({"messages": [HumanMessage(text, id=id)]}, CONFIG)


def test_only_changed_entries_are_written(recording: Recording) -> None:
    def answer(state: MessagesState) -> Any:
        return {"messages": [AIMessage(f"answer {len(state['messages'])}", id=f"a{len(state['messages'])}")]}

    graph = compiled(answer, InMemorySaver())
    say(graph, "moments later", "h1")
    say(graph, "moments later", "h2")
    written = [[v.ref for v in op.outputs] for op in kinds(recording, "create", "update", "delete")]
    assert written == [["state:t1/h1"], ["state:t1/a1"], ["state:t1/h2"], ["state:t1/a3"]]
    created = {v.ref: op.origin for op in kinds(recording, "create") for v in op.outputs}
    [read] = kinds(recording, "retrieve")
    assert [(v.ref, v.origin) for v in read.inputs] == [(ref, created[ref]) for ref in ("state:t1/h1", "state:t1/a1")]
    graph.get_state(CONFIG)
    assert len(kinds(recording, "retrieve")[-1].inputs) == 4


def test_trimmed_edited_and_summarised_messages(recording: Recording) -> None:
    def answer(state: Summarised) -> Any:
        messages = state["messages"]
        if len(messages) < 3:
            return {"messages": [AIMessage("Noted.", id="a1")], "summary": "Ann lives in Paris."}
        gone = [RemoveMessage(id=message.id) for message in messages[:2]]  # pyright: ignore
        edited = HumanMessage("I moved to Rome!", id="h2")
        return {"messages": [*gone, edited, AIMessage("Noted.", id="a2")], "summary": "Ann lives in Rome."}

    saver = InMemorySaver()
    graph = compiled(answer, saver, Summarised)
    say(graph, "I live in Paris.", "h1")
    say(graph, "I moved to Rome.", "h2")
    saver.delete_thread("t1")
    saver.delete_thread("t1")

    made = graph_of(recording)
    states = {ref: [made.content(v) for v in made.history(ref)] for ref in ("state:t1/h2", "state:t1/summary")}
    assert states["state:t1/h2"] == ["I moved to Rome.", "I moved to Rome!", ""]
    assert states["state:t1/summary"] == ["Ann lives in Paris.", "Ann lives in Rome.", ""]
    said = {v.ref: v.content for op in operations(recording) for v in op.inputs if v.ref.startswith("message:h2")}
    assert sorted(said.values()) == ["I moved to Rome!", "I moved to Rome."]
    trimmed, everything, nothing = kinds(recording, "delete")
    assert {v.ref for v in trimmed.outputs} == {"state:t1/h1", "state:t1/a1"}
    assert {v.role for v in trimmed.inputs} == {"previous"}
    assert all(v.origin for v in trimmed.inputs)
    assert {v.ref for v in everything.outputs} == {"state:t1/h2", "state:t1/a2", "state:t1/summary"}
    assert "unknown_record" in nothing.incomplete


def test_an_answer_reads_the_messages_of_the_thread(model: ChatOpenAI, server: ChatStub, recording: Recording) -> None:
    graph = compiled(lambda state: {"messages": [model.invoke(state["messages"])]}, InMemorySaver())
    server.script = ["Paris is nice.", "In Paris, you said."]
    for number, text in enumerate(("I live in Paris.", "Where is it that I live?")):
        with recording.tracer.start_as_current_span("turn"):
            say(graph, text, f"h{number}")

    made = graph_of(recording)
    first, second = kinds(recording, "respond")
    assert contents(made, first.origin, "query") == {"I live in Paris."}
    assert "I live in Paris." in contents(made, second.origin, "state")
    assert "I live in Paris." in contents(made, second.origin, "message")
    stored = next(op for op in kinds(recording, "create") if op.outputs[0].content == "Paris is nice.")
    assert [(v.role, v.origin) for v in stored.inputs] == [("answer", first.origin)]


def test_an_answer_reads_thread_messages_without_an_id(
    model: ChatOpenAI, server: ChatStub, recording: Recording
) -> None:
    def answer(state: Any) -> Any:
        reply: Any = model.invoke(state["messages"])
        return {"messages": [*state["messages"], {"role": "assistant", "content": reply.content}]}

    graph = compiled(answer, InMemorySaver(), Plain)
    called = {"id": "c1", "type": "function", "function": {"name": "look_up", "arguments": '{"of":"Ann"}'}}
    history: list[Any] = [
        {"role": "user", "content": "Where do I live?"},
        {"role": "assistant", "content": None, "tool_calls": [called]},
        {"role": "tool", "content": "Ann lives in Paris.", "tool_call_id": "c1"},
    ]
    server.script = ["In Paris.", "Paris, I said."]
    for added in ([], [{"role": "user", "content": "Where is it?"}]):
        with recording.tracer.start_as_current_span("turn"):
            history = graph.invoke({"messages": [*history, *added]}, CONFIG)["messages"]

    _, second = kinds(recording, "respond")
    written = [v.ref for op in kinds(recording, "create") for v in op.outputs]
    assert {v.ref for v in second.inputs if v.ref.startswith("state:")} == set(written[:4])
    stored = next(op for op in kinds(recording, "create") if op.outputs[0].content == "In Paris.")
    assert [v.role for v in stored.inputs] == ["answer"]


@pytest.mark.skipif(not hasattr(channels, "DeltaChannel"), reason="this release has none")
def test_a_delta_channel_is_recorded_at_its_snapshots(recording: Recording) -> None:
    def reduce(held: Any, given: Any) -> Any:
        return functools.reduce(add_messages, given, held)

    channel: Any = channels.DeltaChannel(reduce, list, snapshot_frequency=3)  # pyright: ignore
    delta: Any = TypedDict("delta", {"messages": Annotated[list[Any], channel]})

    def answer(state: Any) -> Any:
        return {"messages": [AIMessage("Noted.", id=f"a{len(state['messages'])}")]}

    saver = InMemorySaver()
    say(compiled(answer, saver), "I live in Paris.", "h1")
    for id in ("h2", "h3", "h4"):
        say(compiled(answer, saver, delta), "And I like tea.", id)
    created = [v.ref.removeprefix("state:t1/") for op in kinds(recording, "create") for v in op.outputs]
    assert created == ["h1", "a1", "h2", "a3", "h3", "a5", "h4", "a7"]
    assert not kinds(recording, "delete", "update")


def test_the_saved_value_of_a_function_is_its_thread(recording: Recording) -> None:
    @entrypoint(checkpointer=InMemorySaver())
    def chat(messages: Any, *, previous: Any = None) -> Any:
        told = add_messages(previous or [], messages)
        reply = AIMessage("Noted.", id=f"a{len(told)}")  # pyright: ignore
        return entrypoint.final(value="This was said.", save=add_messages(told, [reply]))

    for id in ("h1", "h2"):
        chat.invoke([HumanMessage("I live in Paris.", id=id)], CONFIG)
    written = [[v.ref for v in op.outputs] for op in kinds(recording, "create", "update", "delete")]
    assert written == [["state:t1/h1", "state:t1/a1"], ["state:t1/h2", "state:t1/a3"]]
    assert [v.ref for v in kinds(recording, "retrieve")[0].inputs] == written[0]


async def test_messages_of_another_process_are_not_new(tmp_path: Path, recording: Recording) -> None:
    path, node = str(tmp_path / "threads.db"), lambda state: {"messages": [AIMessage("Noted.", id="a1")]}
    async with AsyncSqliteSaver.from_conn_string(path) as saver:
        graph = compiled(node, saver)
        with recording.tracer.start_as_current_span("turn"):
            await graph.ainvoke({"messages": [HumanMessage("I live in Paris.", id="h1")]}, CONFIG)
        here = operations(recording)
    assert [[v.ref for v in op.outputs] for op in here] == [["state:t1/h1"], ["state:t1/a1"]]
    recording.clear()
    _forget_everything()
    with SqliteSaver.from_conn_string(path) as saver:
        graph = compiled(lambda state: {"messages": [AIMessage("Again.", id="a2")]}, saver)
        say(graph, "Hello.", "h2")
    read, *written = operations(recording)
    assert "unknown_origin" in read.incomplete
    assert {op.scope for op in (read, *written)} == {here[0].scope}
    assert [[v.ref for v in op.outputs] for op in written] == [["state:t1/h2"], ["state:t1/a2"]]


async def test_two_databases_have_two_scopes_of_one_thread_id(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, recording: Recording
) -> None:
    def node(state: MessagesState) -> Any:
        return {"messages": [AIMessage("Noted.", id=f"a{len(state['messages'])}")]}

    monkeypatch.chdir(tmp_path)
    scopes: list[set[str]] = []
    for number, path in enumerate(("ann.db", str(tmp_path / "bob.db"), ":memory:", ":memory:")):
        with SqliteSaver.from_conn_string(path) as saver:
            say(compiled(node, saver), "Hello there.", f"h{number}")
        scopes.append({op.scope for op in operations(recording)})
        recording.clear()
    async with AsyncSqliteSaver.from_conn_string("ann.db") as saver:
        await compiled(node, saver).ainvoke({"messages": [HumanMessage("Again.", id="h9")]}, CONFIG)
    assert not kinds(recording, "delete")
    assert [len(found) for found in scopes] == [1] * 4
    assert len(set().union(*scopes)) == 4
    assert {op.scope for op in operations(recording)} == scopes[0]


def test_a_run_from_an_older_checkpoint_deletes_nothing(recording: Recording) -> None:
    numbers = itertools.count(1)
    graph = compiled(lambda state: {"messages": [AIMessage("Noted.", id=f"a{next(numbers)}")]}, InMemorySaver())
    say(graph, "I live in Paris.", "h1")
    older = graph.get_state(CONFIG).config
    say(graph, "I moved to Rome.", "h2")
    recording.clear()
    graph.invoke({"messages": [HumanMessage("I moved to Oslo.", id="h3")]}, older)
    assert [m.id for m in graph.get_state(CONFIG).values["messages"]] == ["h1", "a1", "h3", "a3"]
    assert not kinds(recording, "delete")
    assert [[v.ref for v in op.outputs] for op in kinds(recording, "create", "update")] == [
        ["state:t1/h3"],
        ["state:t1/a3"],
    ]
    assert [v.ref for v in kinds(recording, "retrieve")[0].inputs] == ["state:t1/h1", "state:t1/a1"]


def _forget_everything() -> None:
    """State that another process lacks."""
    from memtrace_otel.capture import origins
    from memtrace_otel.instrumentation.langchain.langgraph import LangGraphInstrumentor
    from memtrace_otel.instrumentation.langchain.langgraph.threads import Threads

    origins().forget()
    patches: Any = LangGraphInstrumentor().patches
    patches.threads = Threads()
