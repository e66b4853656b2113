"""A reply in a chat memory has the ref of the recorded answer."""

from __future__ import annotations

from typing import Any

import llama_index.core
import networkx as nx
import pytest
from llama_index.core import Settings, VectorStoreIndex
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent, ReActAgent
from llama_index.core.chat_engine import (
    CondensePlusContextChatEngine,
    CondenseQuestionChatEngine,
    ContextChatEngine,
    SimpleChatEngine,
)
from llama_index.core.llms import ChatMessage
from llama_index.core.memory import ChatMemoryBuffer, Memory
from packaging.version import Version

from memtrace_otel.graph import VersionKey
from tests.conftest import Recording
from tests.integration.llamaindex.conftest import PARIS, RagModel, graph_of, memory, operations, reads

QUESTION = "Where does Alice live?"
EARLY = Version(llama_index.core.__version__) < Version("0.14")
pytestmark = pytest.mark.usefixtures("instrumented", "content_on")


def said(text: str, role: str = "assistant") -> ChatMessage:
    return ChatMessage(role=role, content=text)


def answers(recording: Recording) -> list[tuple[str, str]]:
    """The recorded answers, as (ref, origin)."""
    spans = operations(recording, "chat")
    return [(v.ref, span.origin) for span in spans for v in span.outputs]


def put(recording: Recording) -> list[tuple[str, str]]:
    """The answers that were put into a chat memory, as (ref, origin)."""
    return [(v.ref, v.origin) for span in operations(recording, "upsert_memory") for v in reads(span, "answer")]


def messages(recording: Recording) -> list[str]:
    """The texts put into a chat memory that are no answers."""
    return [v.content for span in operations(recording, "upsert_memory") for v in reads(span, "message")]


def engine_of(kind: str, index: VectorStoreIndex) -> Any:
    retriever = index.as_retriever(similarity_top_k=1)
    if kind == "simple":
        return SimpleChatEngine.from_defaults(memory=memory())
    if kind == "context":
        return ContextChatEngine.from_defaults(retriever, memory=memory())
    if kind == "condense question":
        buffer = ChatMemoryBuffer.from_defaults(tokenizer_fn=str.split, chat_store_key="s1")
        engine = index.as_query_engine(similarity_top_k=1)
        return CondenseQuestionChatEngine.from_defaults(engine, memory=buffer)
    return CondensePlusContextChatEngine.from_defaults(retriever, memory=memory())


@pytest.mark.parametrize("way", ["sync", "async", "stream", "async stream"])
@pytest.mark.parametrize("kind", ["simple", "context", "condense question", "condense"])
async def test_a_reply_in_the_memory_of_a_chat_engine_is_the_recorded_answer(
    kind: str, way: str, index: VectorStoreIndex, recording: Recording, model: RagModel
) -> None:
    if EARLY and "stream" in way and kind in ("context", "condense"):
        pytest.skip("earlier releases put the reply in before its stream has come to its end")
    engine, model.echo = engine_of(kind, index), "In Paris."
    for question in (QUESTION, "And her dog?"):
        if way == "sync":
            engine.chat(question)
        elif way == "async":
            await engine.achat(question)
        elif way == "stream":
            list(engine.stream_chat(question).response_gen)
        else:
            assert [token async for token in (await engine.astream_chat(question)).async_response_gen()]
    assert len(answers(recording)) == 2
    assert put(recording) == answers(recording)
    assert messages(recording) == [QUESTION, "And her dog?"]


def test_the_next_answer_descends_from_the_chunks_of_the_last_answer(
    index: VectorStoreIndex, recording: Recording, model: RagModel
) -> None:
    engine = engine_of("context", index)
    model.script += ["In Paris.", "A dog."]
    engine.chat(QUESTION)
    engine.chat("What pet?")
    first, second = operations(recording, "chat")
    (remembered,) = [s for s in operations(recording, "search_memory") if s.parent_id == second.span_id]
    assert [(v.ref, v.origin) for v in reads(remembered, "history")][1:] == answers(recording)[:1]
    graph = graph_of(recording)
    state = [VersionKey(v.ref, v.origin) for v in reads(remembered, "hit")]
    kept = {node.ref for node in graph.ancestors(state[0]) if isinstance(node, VersionKey)}
    assert {v.ref for v in reads(first, "context") if v.ref.startswith("chunk:")} <= kept
    flow = nx.DiGraph((one, other) for one, other, edge in graph.edges(data="type") if edge in ("read", "produced"))
    assert nx.is_directed_acyclic_graph(flow)
    slice_ = [node for node in graph.slice_of_answer(second.origin) if isinstance(node, VersionKey)]
    assert {graph.content(node) for node in slice_ if node.ref.startswith("query:")} == {"What pet?"}


def ask(index: VectorStoreIndex, model: RagModel, text: str) -> str:
    model.script.append(text)
    return str(index.as_query_engine(similarity_top_k=1).query(QUESTION))


@pytest.mark.parametrize("traced", [True, False])
async def test_a_reply_that_the_program_stores_is_the_recorded_answer(
    traced: bool, index: VectorStoreIndex, recording: Recording, model: RagModel
) -> None:
    async def turn() -> None:
        text = ask(index, model, "In Paris.")
        await memory().aput_messages([said(QUESTION, "user"), said(text), said("In Paris.", "user")])

    if traced:
        with recording.tracer.start_as_current_span("turn"):
            await turn()
    else:
        await turn()
    assert put(recording) == answers(recording) != []
    assert messages(recording) == [QUESTION, "In Paris."]


async def test_a_reply_equal_to_two_answers_is_a_new_message(
    index: VectorStoreIndex, recording: Recording, model: RagModel
) -> None:
    with recording.tracer.start_as_current_span("turn"):
        _, text = ask(index, model, "Yes."), ask(index, model, "Yes.")
        await memory().aput(said(text))
    assert (put(recording), messages(recording)) == ([], ["Yes."])


@pytest.mark.parametrize("buffered", [True, False])
@pytest.mark.parametrize("kind", [FunctionAgent, ReActAgent, AgentWorkflow])
async def test_a_reply_in_the_memory_of_an_agent_is_the_recorded_answer(
    kind: Any, buffered: bool, index: VectorStoreIndex, recording: Recording, model: RagModel
) -> None:
    def look_up(question: str) -> str:
        """Look into the notes."""
        return index.as_retriever(similarity_top_k=1).retrieve(question)[0].get_content()

    llm: Any = Settings.llm
    if kind is ReActAgent:
        agent: Any = ReActAgent(tools=[look_up], llm=llm)
        call: Any = f'Thought: A tool.\nAction: look_up\nAction Input: {{"question": "{QUESTION}"}}'
        model.script = [reply for text in ("In Paris.", "A dog.") for reply in (call, f"Thought: Yes.\nAnswer: {text}")]
    else:
        llm.is_function_calling_model = True
        agent = FunctionAgent(name="one", description="finds", tools=[look_up], llm=llm)
        agent = agent if kind is FunctionAgent else AgentWorkflow(agents=[agent], root_agent="one")
        call = {"calls": [["look_up", {"question": QUESTION}]]}
        model.script = [call, "In Paris.", call, "A dog."]
    kept = ChatMemoryBuffer.from_defaults(tokenizer_fn=str.split, chat_store_key="s1") if buffered else memory()
    for question in (QUESTION, "And her pet?"):
        await agent.run(question, memory=kept)
    assert len(answers(recording)) == 2
    assert put(recording) == answers(recording)
    assert [text for text in messages(recording) if text != PARIS] == [QUESTION, "And her pet?"]


def memory_of(session: str) -> Memory:
    return Memory.from_defaults(session_id=session, tokenizer_fn=str.split)
