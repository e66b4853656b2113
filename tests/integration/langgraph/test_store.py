"""Long-term stores: the operations of a batch, the versions and the owner of a record."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langchain_openai import ChatOpenAI
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.base import BaseStore, GetOp, Item, ListNamespacesOp, PutOp, SearchOp
from langgraph.store.memory import InMemoryStore
from langgraph.store.sqlite import AsyncSqliteStore, SqliteStore

from memtrace_otel.graph import VersionKey
from memtrace_otel.model import ref_kind
from tests.conftest import Recording
from tests.integration.langchain.conftest import ChatStub, Hashed, contents, graph_of, kinds, names, operations

pytestmark = pytest.mark.usefixtures("instrumented", "content_on")

ANN, BOB = ("notes", "ann"), ("notes", "bob")


@pytest.fixture
def memory() -> InMemoryStore:
    return InMemoryStore(index={"embed": Hashed(), "dims": 64})


def test_a_record_is_created_updated_found_and_deleted(memory: InMemoryStore, recording: Recording) -> None:
    memory.put(ANN, "home", {"text": "Ann lives in Paris."})
    memory.put(ANN, "home", {"text": "Ann lives in Rome."})
    memory.search(ANN, query="Where does Ann live?", limit=3)
    memory.get(ANN, "home")
    memory.delete(ANN, "home")
    memory.put(ANN, "home", {"text": "Ann lives in Oslo."})

    assert names(recording) == [
        "upsert_memory",
        "upsert_memory",
        "search_memory",
        "search_memory",
        "delete_memory",
        "upsert_memory",
    ]
    graph = graph_of(recording)
    history = graph.history("memory:notes/ann/home")
    assert [graph.content(version) for version in history] == [
        "Ann lives in Paris.",
        "Ann lives in Rome.",
        "",
        "Ann lives in Oslo.",
    ]
    assert [graph.is_tombstone(version) for version in history] == [False, False, True, False]
    created, updated, search, get, deleted, again = operations(recording)
    assert [op.kind for op in (created, updated, again)] == ["create", "update", "create"]
    assert [(v.role, v.origin) for v in updated.inputs[1:]] == [("previous", created.origin)]
    assert [(v.role, v.origin) for v in deleted.inputs] == [("previous", updated.origin)]
    for reader in (search, get):
        assert [v.origin for v in reader.inputs if v.role == "hit"] == [updated.origin]
        assert reader.scope == created.scope
    assert [v.score is not None for v in search.inputs if v.role == "hit"] == [True]
    assert search.attributes["gen_ai.memory.query.text"] == "Where does Ann live?"


def test_a_written_text_of_the_program_is_a_message(memory: InMemoryStore, recording: Recording) -> None:
    for namespace in (ANN, BOB):
        memory.put(namespace, "home", {"text": "Lives in Paris."})
    graph = graph_of(recording)
    said = graph.messages()
    assert [graph.content(message) for message in said] == ["Lives in Paris."] * 2
    assert {message.scope for message in said} == {op.scope for op in operations(recording)}
    assert not any(op.incomplete for op in operations(recording))
    assert not any(isinstance(node, VersionKey) and ref_kind(node.ref) == "fact" for node in graph.nodes)


def test_the_operations_of_a_batch_are_siblings(memory: InMemoryStore, recording: Recording) -> None:
    memory.put(ANN, "home", {"text": "Ann lives in Paris."})
    recording.clear()
    with recording.tracer.start_as_current_span("turn"):
        results = memory.batch(
            [
                GetOp(ANN, "home"),
                PutOp(ANN, "home", {"text": "Ann lives in Rome."}),
                PutOp(BOB, "pet", {"text": "first"}),
                PutOp(BOB, "pet", {"text": "Bob has a cat."}),
                SearchOp(("notes",)),
                ListNamespacesOp(),
            ]
        )
    assert results[0].value == {"text": "Ann lives in Paris."}  # pyright: ignore
    assert names(recording) == ["search_memory", "upsert_memory", "upsert_memory", "search_memory"]
    [turn] = recording.named("turn")
    got, home, pet, found = operations(recording)
    assert {op.parent_id for op in (got, home, pet, found)} == {f"{turn.context.span_id:016x}"}
    assert [v.content for v in pet.outputs] == ["Bob has a cat."]  # the store keeps the last one
    assert home.scope != pet.scope
    before = [v.origin for v in got.inputs]
    assert [v.origin for v in found.inputs] == before != [home.origin]  # a batch reads what was there before it


async def test_a_batched_store_records_in_the_context_of_the_caller(tmp_path: Path, recording: Recording) -> None:
    async with AsyncSqliteStore.from_conn_string(str(tmp_path / "store.db")) as store:
        await store.setup()
        with recording.tracer.start_as_current_span("turn"):
            texts = {"a": "Ann lives in Paris.", "b": "Bob plays chess."}
            await asyncio.gather(*(store.aput(ANN, key, {"text": text}) for key, text in texts.items()))
            await asyncio.to_thread(store.put, ANN, "a", {"text": "Ann lives in Rome."})
            await store.asearch(ANN)
            await store.abatch([PutOp(ANN, "b", None)])
    [turn] = recording.named("turn")
    assert len(operations(recording)) == 5
    assert {op.trace_id for op in operations(recording)} == {f"{turn.context.trace_id:032x}"}
    written = {op.scope for op in operations(recording)}
    recording.clear()
    with SqliteStore.from_conn_string(str(tmp_path / "store.db")) as same:
        same.setup()
        same.get(ANN, "a")
    [get] = operations(recording)
    assert {get.scope} == written  # another client of the same database
    assert [v.content for v in graph_of(recording).operations(kind="retrieve")[0].outputs] == ["Ann lives in Rome."]


@pytest.mark.parametrize("kind", [InMemoryStore, lambda: Notebook()])
def test_stores_in_memory_have_separate_scopes(kind: Callable[[], BaseStore], recording: Recording) -> None:
    one, other = kind(), kind()
    one.put(ANN, "home", {"text": "Paris"})
    other.put(ANN, "home", {"text": "Rome"})
    one.get(ANN, "home")
    first, second, get = operations(recording)
    assert second.kind == "create"
    assert [v.origin for v in get.inputs] == [first.origin]


def test_an_agent_that_remembers_and_answers(
    memory: InMemoryStore, model: ChatOpenAI, server: ChatStub, recording: Recording
) -> None:
    def answer(state: MessagesState, *, store: BaseStore) -> Any:
        asked = state["messages"][-1].content
        known = "\n".join(item.value["text"] for item in store.search(ANN, query=str(asked), limit=1))
        said = model.invoke(f"Known: {known}\nQuestion: {asked}")
        store.put(ANN, "last answer", {"text": said.content})
        return {"messages": [said]}

    graph: Any = StateGraph(MessagesState).add_node("answer", answer).add_edge(START, "answer").compile(store=memory)
    memory.put(ANN, "home", {"text": "Ann lives in Paris."})
    memory.put(ANN, "pet", {"text": "Ann has a dog."})
    server.script = ["She lives there.", "Yes, one."]
    for question in ("Where is it that Ann lives?", "Does Ann have a dog?"):
        with recording.tracer.start_as_current_span("turn"):
            graph.invoke({"messages": [HumanMessage(question)]})

    made = graph_of(recording)
    first, second = kinds(recording, "respond")
    assert contents(made, first.origin, "query") == {"Where is it that Ann lives?"}
    assert contents(made, first.origin, "memory") == {"Ann lives in Paris."}
    assert contents(made, second.origin, "query") == {"Does Ann have a dog?"}
    assert contents(made, second.origin, "memory") == {"Ann has a dog."}
    last = made.history("memory:notes/ann/last%20answer")
    assert [made.content(version) for version in last] == ["She lives there.", "Yes, one."]
    ancestors = made.ancestors(last[0])
    assert f"answer:{first.span_id}" in {node.ref for node in ancestors if isinstance(node, VersionKey)}
    kept = [version for op in made.operations() for version in made.outputs(op.origin) if "memory:" in version.ref]
    for version in kept:
        if "last" not in version.ref:  # an answer does depend on its question
            assert "query" not in {ref_kind(n.ref) for n in made.ancestors(version) if isinstance(n, VersionKey)}


class Notebook(BaseStore):
    """A custom store that keeps all data in the object."""

    def __init__(self) -> None:
        self.notes: dict[Any, Item] = {}

    def batch(self, ops: Any) -> Any:
        return [self.do(op) for op in ops]

    async def abatch(self, ops: Any) -> Any:
        return self.batch(ops)

    def do(self, op: Any) -> Item | None:
        if isinstance(op, PutOp):
            now = datetime.now(UTC)
            self.notes[op.namespace, op.key] = Item(
                value=op.value or {}, key=op.key, namespace=op.namespace, created_at=now, updated_at=now
            )
        return self.notes.get((op.namespace, op.key)) if isinstance(op, GetOp) else None


def test_a_write_after_expiry_is_an_addition(recording: Recording) -> None:
    with SqliteStore.from_conn_string(":memory:", ttl={"default_ttl": 60}) as store:
        store.setup()
        store.put(("notes",), "n1", {"text": "Ann lives in Paris."}, ttl=-1)
        store.sweep_ttl()
        assert store.get(("notes",), "n1") is None
        store.put(("notes",), "n1", {"text": "Ann lives in Rome."})
    _, _, again = operations(recording)
    assert [(v.action, v.content) for v in again.outputs] == [("ADD", "Ann lives in Rome.")]
    assert [v.role for v in again.inputs] == ["message"]
