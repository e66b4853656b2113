"""Whose an answer is: equal questions of different owners are different questions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from llama_index.core import Settings, VectorStoreIndex, get_response_synthesizer
from llama_index.core.agent.workflow import FunctionAgent, ReActAgent
from llama_index.core.chat_engine import ContextChatEngine, SimpleChatEngine
from llama_index.core.memory import Memory
from llama_index.core.query_engine import RouterQueryEngine
from llama_index.core.schema import NodeWithScore, TextNode
from llama_index.core.selectors import LLMSingleSelector
from llama_index.core.tools import QueryEngineTool

from memtrace_otel.capture import Operation
from memtrace_otel.graph import VersionKey
from tests.conftest import Recording
from tests.integration.llamaindex.conftest import PARIS, RagModel, graph_of, index_of, operations

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
def test_equal_questions_of_three_users_are_three(
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
async def test_an_agent_answers_for_whom_its_memory_is(
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


def test_users_of_one_index_ask_one_question(recording: Recording, model: RagModel) -> None:
    index = index_of(PARIS)
    for _ in USERS:
        index.as_query_engine().query(QUESTION)
    assert len(questions(recording)) == 1


def test_an_operation_around_tells_whose_it_is(recording: Recording, model: RagModel) -> None:
    node = NodeWithScore(node=TextNode(text=PARIS, id_="n1"))
    for user in USERS:
        with Operation(kind="other", system="own", scope=user, tracer=recording.tracer):
            get_response_synthesizer().synthesize(QUESTION, nodes=[node])
    owners = [span.scope for span in operations(recording, "memtrace.other")]
    assert len(set(owners)) == len(USERS)
    assert sorted(questions(recording)) == sorted(owners)
