"""The scope of an answer: equal questions of different owners are different questions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from llama_index.core import Settings, VectorStoreIndex, get_response_synthesizer
from llama_index.core.agent.workflow import FunctionAgent, ReActAgent
from llama_index.core.chat_engine import ContextChatEngine, SimpleChatEngine
from llama_index.core.llms import ChatMessage
from llama_index.core.memory import ChatMemoryBuffer, Memory
from llama_index.core.query_engine import RouterQueryEngine
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.core.selectors import LLMSingleSelector
from llama_index.core.storage.chat_store import SimpleChatStore
from llama_index.core.tools import QueryEngineTool
from llama_index.vector_stores.qdrant import QdrantVectorStore
from qdrant_client import QdrantClient
from sqlalchemy.ext.asyncio import create_async_engine

from memtrace_otel.capture import Operation
from memtrace_otel.graph import VersionKey
from tests.conftest import Recording
from tests.integration.llamaindex.conftest import PARIS, RagModel, graph_of, operations, reads

QUESTION = "Where do I live?"
USERS = ("ann", "bob", "cid")
pytestmark = pytest.mark.usefixtures("instrumented")


def questions(recording: Recording) -> list[str]:
    """The owners of the question."""
    nodes = graph_of(recording).nodes
    return [node.scope for node in nodes if isinstance(node, VersionKey) and node.ref.startswith("query:")]


def memory_of(user: str) -> Memory:
    return Memory.from_defaults(session_id=user, tokenizer_fn=str.split)


def simple(user: str) -> Any:
    return SimpleChatEngine.from_defaults(memory=memory_of(user))


def finding_nothing(user: str) -> Any:
    return ContextChatEngine.from_defaults(VectorStoreIndex([]).as_retriever(), memory=memory_of(user))


def empty_index(_: str) -> Any:
    return VectorStoreIndex([]).as_query_engine()


def router(_: str) -> Any:
    tool = QueryEngineTool.from_defaults(VectorStoreIndex([]).as_query_engine(), description="notes")
    selector = LLMSingleSelector.from_defaults(llm=Settings.llm)
    return RouterQueryEngine.from_defaults([tool], llm=Settings.llm, selector=selector)


@pytest.mark.parametrize("engine_of", [simple, finding_nothing, empty_index, router])
def test_equal_questions_of_three_users_have_three_scopes(
    engine_of: Callable[[str], Any], recording: Recording, model: RagModel
) -> None:
    model.echo = '[{"choice": 1, "reason": "notes"}]'  # whatever is asked: a router asks, too
    engines = [engine_of(user) for user in USERS]
    for engine in engines:
        engine.chat(QUESTION) if hasattr(engine, "chat") else engine.query(QUESTION)
    owners = {span.scope for span in operations(recording, "chat")}
    assert len(owners) == len(USERS)
    assert "" not in owners
    assert owners <= set(questions(recording))
    assert "" not in questions(recording)


@pytest.mark.parametrize("given", ["a session", "none"])
@pytest.mark.parametrize("kind", [FunctionAgent, ReActAgent])
async def test_the_scope_of_an_agent_is_that_of_its_memory(
    kind: Any, given: str, recording: Recording, model: RagModel
) -> None:
    model.echo = "Thought: I can answer.\nAnswer: In Paris."
    for user in USERS:
        options: dict[str, Any] = {"memory": memory_of(user)} if given == "a session" else {}
        llm = Settings.llm
        llm.is_function_calling_model = True  # type: ignore[attr-defined]
        await kind(tools=[], llm=llm).run(QUESTION, **options)
    assert len(questions(recording)) == len(USERS)
    for answer in operations(recording, "chat"):
        written = {s.scope for s in operations(recording, "upsert_memory") if s.parent_id == answer.span_id}
        assert written == {answer.scope}


def test_the_operation_around_gives_the_scope(recording: Recording, model: RagModel) -> None:
    node = NodeWithScore(node=TextNode(text=PARIS, id_="n1"))
    for user in USERS:
        with Operation(kind="other", system="own", scope=user, tracer=recording.tracer):
            get_response_synthesizer().synthesize(QUESTION, nodes=[node])
    owners = [span.scope for span in operations(recording, "memtrace.other")]
    assert len(set(owners)) == len(USERS)
    assert sorted(questions(recording)) == sorted(owners)


def conversations(kind: str, folder: Path) -> list[Any]:
    """Chat memories of one session in a first, a second and again the first place."""
    options: dict[str, Any] = {"tokenizer_fn": str.split}
    if kind == "chat stores":
        stores = [SimpleChatStore(), SimpleChatStore()] * 2
        return [
            ChatMemoryBuffer.from_defaults(chat_store_key="s1", chat_store=store, **options) for store in stores[:3]
        ]
    if kind == "databases in memory":
        memories = [memory_of("s1"), memory_of("s1")]
        return [*memories, memories[0]]
    if kind == "engines":
        engines = [create_async_engine("sqlite+aiosqlite://"), create_async_engine("sqlite+aiosqlite://")] * 2
        return [Memory.from_defaults(session_id="s1", async_engine=engine, **options) for engine in engines[:3]]
    files = [f"sqlite+aiosqlite:///{folder / name}.db" for name in ("ann", "bob", "ann")]
    return [Memory.from_defaults(session_id="s1", async_database_uri=file, **options) for file in files]


@pytest.mark.parametrize("kind", ["chat stores", "databases in memory", "engines", "files"])
def test_equal_sessions_of_two_stores_have_two_scopes(kind: str, tmp_path: Path, recording: Recording) -> None:
    memories = conversations(kind, tmp_path)
    for memory in memories:
        memory.put(ChatMessage(role="user", content="I live in Paris."))
    memories[1].get()
    ann, bob, again = operations(recording, "upsert_memory")
    (read,) = operations(recording, "search_memory")
    assert [v.ref for v in reads(read, "history")] == [v.ref for v in reads(bob, "message")]
    assert ann.scope == again.scope != bob.scope
    assert [write.outputs[0].action for write in (ann, bob, again)] == ["ADD", "ADD", "UPDATE"]
    assert [v.origin for v in reads(again, "previous")] == [ann.origin]


@pytest.mark.parametrize("where", ["in memory", "in folders"])
def test_equal_collections_of_two_stores_have_two_scopes(where: str, tmp_path: Path, recording: Recording) -> None:
    places = [{"location": ":memory:"}] * 2 if where == "in memory" else [{"path": str(tmp_path / n)} for n in "ab"]
    ann, bob = (QdrantClient(**place) for place in places)
    for client in (ann, bob):
        store = QdrantVectorStore(collection_name="notes", client=client)
        VectorStoreIndex.from_vector_store(store).insert_nodes([TextNode(text=PARIS, id_=str(UUID(int=1)))])
    again = QdrantVectorStore(collection_name="notes", client=ann)
    assert VectorStoreIndex.from_vector_store(again).as_retriever().retrieve(QUESTION)
    of_ann, of_bob = operations(recording, "create_memory")
    (retrieval,) = operations(recording, "retrieval")
    assert of_ann.scope == retrieval.scope != of_bob.scope
    assert [v.origin for v in reads(retrieval, "hit")] == [of_ann.origin]
    ann.close()
    bob.close()
