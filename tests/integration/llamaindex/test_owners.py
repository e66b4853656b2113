"""The scope of an answer: equal questions of different owners are different questions."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from llama_index.core import Settings, VectorStoreIndex
from llama_index.core.chat_engine import ContextChatEngine, SimpleChatEngine
from llama_index.core.memory import Memory
from llama_index.core.query_engine import RouterQueryEngine
from llama_index.core.schema import TextNode
from llama_index.core.selectors import LLMSingleSelector
from llama_index.core.tools import QueryEngineTool
from llama_index.vector_stores.qdrant import QdrantVectorStore
from qdrant_client import QdrantClient

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
