"""Agents with search functions as tools: the answer of the agent reads the chunks that the tools return."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from llama_index.core import Settings, VectorStoreIndex, get_response_synthesizer
from llama_index.core.agent.workflow import AgentWorkflow, FunctionAgent, ReActAgent
from llama_index.core.llms import LLM
from llama_index.core.workflow import Event, StartEvent, StopEvent, Workflow, step
from llama_index.llms.openai_like import OpenAILike

from memtrace_otel.capture import feedback, variable_ref
from memtrace_otel.graph import VersionKey
from memtrace_otel.model import OperationSpan
from tests.conftest import Recording
from tests.integration.llamaindex.conftest import CHESS, PARIS, RagModel, graph_of, index_of, operations, reads

QUESTION = "Where does she live?"
pytestmark = pytest.mark.usefixtures("instrumented", "content_on")


@pytest.fixture
def calling(model: RagModel) -> LLM:
    """A model that calls tools by the API of its provider."""
    options: dict[str, Any] = {"api_base": model.url, "api_key": "none", "max_retries": 0, "reuse_client": False}
    return OpenAILike(model="stub", is_chat_model=True, is_function_calling_model=True, context_window=4096, **options)


def look_up(index: VectorStoreIndex) -> Callable[[str], str]:
    def look_up(question: str) -> str:
        """Look into the notes."""
        return "\n".join(found.get_content() for found in index.as_retriever(similarity_top_k=1).retrieve(question))

    return look_up


def alook_up(index: VectorStoreIndex) -> Callable[[str], Any]:
    async def look_up(question: str) -> str:
        """Look into the notes."""
        found = await index.as_retriever(similarity_top_k=1).aretrieve(question)
        return "\n".join(one.get_content() for one in found)

    return look_up


def calls(*questions: str, tool: str = "look_up") -> dict[str, Any]:
    return {"calls": [[tool, {"question": question}] for question in questions]}


def answer_of(recording: Recording) -> OperationSpan:
    (found,) = operations(recording, "chat")
    return found


def chunks(answer: OperationSpan) -> list[str]:
    """The chunks that an answer was made of."""
    texts = {variable_ref("chunk", text).partition(":")[2]: text for text in (PARIS, CHESS)}
    return [texts[v.digest] for v in reads(answer, "context") if v.ref.startswith("chunk:")]


@pytest.mark.parametrize("search", [look_up, alook_up], ids=["plain function", "coroutine function"])
@pytest.mark.parametrize("kind", ["function agent", "react agent", "workflow"])
async def test_the_retrieval_of_a_tool_is_in_the_answer(
    kind: str,
    search: Any,
    index: VectorStoreIndex,
    calling: LLM,
    recording: Recording,
    model: RagModel,
) -> None:
    model.script += [calls("Where does Alice live?"), "She lives in Paris."]
    if kind == "react agent":
        agent: Any = ReActAgent(tools=[search(index)], llm=Settings.llm)
        model.script = [
            'Thought: I need a tool.\nAction: look_up\nAction Input: {"question": "Where does Alice live?"}',
            "Thought: I can answer.\nAnswer: She lives in Paris.",
        ]
    else:
        agent = FunctionAgent(name="one", description="finds", tools=[search(index)], llm=calling)
    if kind == "workflow":
        agent = AgentWorkflow(agents=[agent], root_agent="one")
    assert str(await agent.run(QUESTION)) == "She lives in Paris."

    answer, (search_,) = answer_of(recording), operations(recording, "retrieval")
    assert chunks(answer) == [PARIS]
    assert search_.origin in {v.origin for v in reads(answer, "context")}
    assert search_.parent_id == answer.span_id
    assert "inferred" in answer.incomplete
    graph = graph_of(recording)
    slice_ = [n for n in graph.slice_of_answer(answer.origin) if isinstance(n, VersionKey)]
    queries = {graph.content(n) for n in slice_ if n.ref.startswith("query:")}
    assert queries == {QUESTION, "Where does Alice live?"}


async def test_a_tool_output_in_other_words_descends_from_its_search(
    index: VectorStoreIndex, calling: LLM, recording: Recording, model: RagModel
) -> None:
    def place(question: str) -> str:
        """Name the place."""
        return index.as_retriever(similarity_top_k=1).retrieve(question)[0].get_content().split()[3]

    model.script += [calls("Where does Alice live?", tool="place"), "In Paris."]
    await FunctionAgent(tools=[place], llm=calling).run(QUESTION)
    answer, (search,) = answer_of(recording), operations(recording, "retrieval")
    assert chunks(answer) == []
    assert search.origin in {v.origin for v in reads(answer, "context")}
    assert "inferred" in answer.incomplete


async def test_chunks_that_the_program_puts_into_the_message_are_read(
    index: VectorStoreIndex, calling: LLM, recording: Recording, model: RagModel
) -> None:
    index_of(PARIS).as_retriever().retrieve("Alice lives where?")  # an equal text of another search
    recording.clear()
    notes = "\n".join(
        one.get_content() for one in index.as_retriever(similarity_top_k=1).retrieve("Alice lives where?")
    )
    model.script.append("In Paris.")
    await FunctionAgent(tools=[], llm=calling).run(f"Notes: {notes}\nQuestion: {QUESTION}")
    assert chunks(answer_of(recording)) == [PARIS]
    (search,) = operations(recording, "retrieval")
    read = [v.ref for v in reads(answer_of(recording), "context") if v.ref.startswith("chunk:")]
    assert read == [v.ref for v in reads(search, "hit")]
    model.script.append("I do not know.")
    await FunctionAgent(tools=[], llm=calling).run(QUESTION)
    assert chunks(operations(recording, "chat")[1]) == []


class Found(Event):
    nodes: list[Any]


class Rag(Workflow):
    """One step searches, the next step answers."""

    @step
    async def find(self, ev: StartEvent) -> Found:
        return Found(nodes=await ev.index.as_retriever(similarity_top_k=1).aretrieve(QUESTION))

    @step
    async def write(self, ev: Found) -> StopEvent:
        return StopEvent(result=str(await get_response_synthesizer().asynthesize(QUESTION, ev.nodes)))


async def test_the_run_of_a_workflow_is_a_turn_without_a_span_around_it(
    index: VectorStoreIndex, recording: Recording
) -> None:
    await Rag(timeout=60).run(index=index)
    assert feedback("fail", tracer=recording.tracer)
    (judge,) = operations(recording, "memtrace.judge")
    assert reads(judge, "answer")[0].origin == answer_of(recording).origin
