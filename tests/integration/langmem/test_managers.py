"""The managers of langmem: from the messages to the stored and removed records."""

from __future__ import annotations

import re
from typing import Any

import pytest
from langchain_openai import ChatOpenAI
from langgraph.func import entrypoint
from langgraph.prebuilt import create_react_agent
from langgraph.store.memory import InMemoryStore
from langmem import (
    ReflectionExecutor,
    create_manage_memory_tool,
    create_memory_manager,
    create_memory_store_manager,
    create_search_memory_tool,
)

from memtrace_otel.graph import OperationKey, VersionKey
from memtrace_otel.model import ref_kind
from tests.conftest import Recording
from tests.integration.langchain.conftest import ChatStub, graph_of, kinds, names, operations
from tests.integration.langmem.conftest import CONFIG, OWNER, Remember, patches, remembers, removes

pytestmark = pytest.mark.usefixtures("instrumented", "content_on")


def shown_id(text: str) -> Any:
    """A reply that depends on the id under which the prompt shows the memory with this text."""

    def find(prompt: str) -> str:
        found = re.search(rf"([0-9a-f]{{32}})(?:(?![0-9a-f]{{32}}).)*?{re.escape(text)}", prompt, re.DOTALL)
        assert found, prompt
        return found.group(1)

    return find


@pytest.mark.parametrize("asynchronous", [False, True], ids=["sync", "async"])
async def test_every_fact_is_extracted_decided_and_stored(
    asynchronous: bool, remember: Remember, aremember: Remember, server: ChatStub, recording: Recording
) -> None:
    server.script = [remembers("Ann lives in Paris.", "Ann has a dog.")]
    with recording.tracer.start_as_current_span("turn"):
        stored = (
            await aremember("I live in Paris.", "I have a dog.")
            if asynchronous
            else remember("I live in Paris.", "I have a dog.")
        )
    assert len(stored) == 2
    kinds_seen = [name for name in names(recording) if name != "memtrace.retrieve"]
    assert kinds_seen == ["upsert_memory", "memtrace.extract", "memtrace.decide", "upsert_memory", "upsert_memory"]
    [manage] = kinds(recording, "ingest")
    inner = [op for op in operations(recording) if op.origin != manage.origin]
    assert {op.parent_id for op in inner} == {manage.span_id}
    graph = graph_of(recording)
    for write in kinds(recording, "create"):
        [version] = graph.outputs(write.origin)
        ancestors = graph.ancestors(version)
        through = {graph.operation(n.origin).kind for n in ancestors if isinstance(n, OperationKey)}
        assert through == {"create", "decide", "extract"}
        refs = {ref_kind(node.ref) for node in ancestors if isinstance(node, VersionKey)}
        assert refs == {"fact", "message", "prompt"}
        facts = {graph.content(n) for n in ancestors if isinstance(n, VersionKey) and n.ref.startswith("fact:")}
        assert facts == {graph.content(version)}
    assert {write.scope for write in kinds(recording, "create")} == {manage.scope}


def test_facts_update_and_delete_records(
    remember: Remember, memory: InMemoryStore, server: ChatStub, recording: Recording
) -> None:
    server.script = [
        remembers("Ann lives in Paris.", "Ann has a dog."),
        lambda prompt: patches(shown_id("Ann lives in Paris.")(prompt), "Ann lives in Rome."),
        lambda prompt: removes(shown_id("Ann has a dog.")(prompt)),
    ]
    remember("I live in Paris.", "I have a dog.")
    remember("I live in Rome now.")
    remember("My dog is gone.")
    assert [item.value["content"]["content"] for item in memory.search(OWNER)] == ["Ann lives in Rome."]

    graph = graph_of(recording)
    created = {op.outputs[0].content: op for op in kinds(recording, "create")}
    home, dog = created["Ann lives in Paris."].outputs[0].ref, created["Ann has a dog."].outputs[0].ref
    assert [graph.content(version) for version in graph.history(home)] == ["Ann lives in Paris.", "Ann lives in Rome."]
    assert [graph.is_tombstone(version) for version in graph.history(dog)] == [False, True]

    _, changing, removing = kinds(recording, "decide")
    assert {(v.ref, v.action) for v in changing.outputs if v.action == "NONE"} == {(dog, "NONE")}
    assert [v.content for v in changing.outputs if v.action == "UPDATE"] == ["Ann lives in Rome."]
    assert [v.action for v in removing.outputs if v.action != "NONE"] == ["DELETE"]
    [update], [delete] = kinds(recording, "update"), kinds(recording, "delete")
    assert [(v.role, v.origin) for v in update.inputs] == [
        ("other", changing.origin),
        ("previous", created["Ann lives in Paris."].origin),
    ]
    assert [(v.role, v.origin) for v in delete.inputs] == [
        ("other", removing.origin),
        ("previous", created["Ann has a dog."].origin),
    ]
    for version in graph.history(home) + graph.history(dog):
        ancestors = [node for node in graph.ancestors(version) if isinstance(node, VersionKey)]
        assert "query" not in {ref_kind(node.ref) for node in ancestors}
    said = {graph.content(n) for n in graph.ancestors(graph.history(home)[1]) if isinstance(n, VersionKey)}
    assert "My dog is gone." not in said


def test_a_reply_without_a_tool_call_is_marked_unparsed(
    remember: Remember, server: ChatStub, recording: Recording
) -> None:
    server.script = ["I will remember that!"]
    assert remember("I live in Paris.") == []
    [extract] = kinds(recording, "extract")
    assert "unparsed" in extract.incomplete
    assert [(v.ref.partition(":")[0], v.content) for v in extract.outputs] == [("completion", "I will remember that!")]
    [manage] = kinds(recording, "ingest")
    assert manage.attributes["gen_ai.memory.record.count"] == 0


def test_a_manager_without_a_store(model: ChatOpenAI, server: ChatStub, recording: Recording) -> None:
    server.script = [remembers("Ann lives in Paris.")]
    known = [("m1", create_memory_manager(model).schemas[0](content="Ann has a dog."))]
    create_memory_manager(model).invoke({"messages": [{"role": "user", "content": "Paris!"}], "existing": known})
    [extract] = operations(recording)
    assert [(v.ref, v.role) for v in extract.inputs if v.role == "candidate"] == [("memory:m1", "candidate")]
    assert [v.content for v in extract.outputs if v.ref.startswith("fact:")] == ["Ann lives in Paris."]


def test_the_tools_of_an_agent_are_operations_of_its_store(memory: InMemoryStore, recording: Recording) -> None:
    manage = create_manage_memory_tool(OWNER, store=memory)
    search = create_search_memory_tool(OWNER, store=memory)
    id = manage.invoke({"content": "Ann lives in Paris.", "action": "create"}).split()[-1]
    manage.invoke({"content": "Ann lives in Rome.", "action": "update", "id": id})
    search.invoke({"query": "Where does Ann live?"})
    manage.invoke({"action": "delete", "id": id})
    created, updated, found, deleted = operations(recording)
    assert [op.kind for op in (created, updated, found, deleted)] == ["create", "update", "retrieve", "delete"]
    assert [v.origin for v in found.inputs if v.role == "hit"] == [updated.origin]
    graph = graph_of(recording)
    texts = [graph.content(version) for version in graph.history(f"memory:memories/ann/{id}")]
    assert texts == ["Ann lives in Paris.", "Ann lives in Rome.", ""]


def test_a_write_of_an_agent_has_the_tool_call_as_source(
    model: ChatOpenAI, memory: InMemoryStore, server: ChatStub, recording: Recording
) -> None:
    text = 'Ann says "tea",\nnot coffee.'
    agent: Any = create_react_agent(model, [create_manage_memory_tool(OWNER)], store=memory)
    server.script = [{"calls": [["manage_memory", {"content": text}]]}, "Noted."]
    with recording.tracer.start_as_current_span("turn"):
        agent.invoke({"messages": [("user", "I drink tea, not coffee.")]})
    [stored] = kinds(recording, "create")
    calling, _ = kinds(recording, "respond")
    assert [(v.ref, v.origin) for v in stored.inputs] == [(calling.outputs[0].ref, calling.origin)]
    graph = graph_of(recording)
    [version] = graph.outputs(stored.origin)
    ancestors = [node for node in graph.ancestors(version) if isinstance(node, VersionKey)]
    assert "I drink tea, not coffee." in {graph.content(node) for node in ancestors}


def test_delayed_work_stays_in_the_trace_of_its_submitter(
    model: ChatOpenAI, memory: InMemoryStore, server: ChatStub, recording: Recording
) -> None:
    server.script = [remembers("Ann lives in Paris.")]
    manager = create_memory_store_manager(model, namespace=("memories", "{user_id}"))
    executor: Any = ReflectionExecutor(manager, store=memory)
    with recording.tracer.start_as_current_span("turn"):
        later = executor.submit({"messages": [{"role": "user", "content": "Paris!"}]}, config=CONFIG, after_seconds=0)
    later.result(timeout=20)
    executor._worker_running = False  # its own shutdown waits for nothing that it stops
    executor._worker.join(5)
    [turn] = recording.named("turn")
    assert {op.trace_id for op in operations(recording)} == {f"{turn.context.trace_id:032x}"}
    [manage] = kinds(recording, "ingest")
    assert manage.parent_id == f"{turn.context.span_id:016x}"
    assert len(kinds(recording, "create")) == 1


def test_equal_messages_have_two_refs_in_all_steps(remember: Remember, server: ChatStub, recording: Recording) -> None:
    for fact in ("Ann drinks coffee.", "Ann owns bicycles."):
        server.script.append(remembers(fact))
        remember("Yes.", "Yes.")
    said = [[item.ref for item in op.inputs if item.role == "message"] for op in kinds(recording, "ingest")]
    assert len({ref for refs in said for ref in refs}) == 4
    assert [[item.ref for item in op.inputs if item.role == "message"] for op in kinds(recording, "extract")] == said


def test_a_message_with_an_id_has_one_ref(
    manager: Any, memory: InMemoryStore, server: ChatStub, recording: Recording
) -> None:
    for fact in ("Ann drinks coffee.", "Ann owns bicycles."):
        server.script.append(remembers(fact))
        entrypoint(store=memory)(
            lambda messages: manager.invoke({"messages": messages}, config=CONFIG)  # pyright: ignore
        ).invoke([{"role": "user", "content": "Yes.", "id": "m7"}], CONFIG)
    assert {
        item.ref for op in kinds(recording, "ingest", "extract") for item in op.inputs if item.role == "message"
    } == {"message:m7"}
