"""Batches: one step of all chains runs before the next step, and each answer has its own question."""

from __future__ import annotations

import gc
from contextlib import nullcontext
from typing import Any

import pytest
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.tools import tool
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_openai import ChatOpenAI

from memtrace_otel.graph import EvolutionGraph
from memtrace_otel.instrumentation.langchain import LangChainInstrumentor
from memtrace_otel.model import OperationSpan
from tests.conftest import Recording
from tests.integration.langchain.conftest import contents, graph_of, kinds

pytestmark = pytest.mark.usefixtures("instrumented", "content_on")

QUOTING = "Notes: {context}\nQuestion: {question}"
SILENT = "Say what these notes tell you: {context}"
QUESTIONS = ["Where is it that Ann lives?", "Where does Ann live?", "What is it that Bob plays?"]
CHUNKS = {"Where": "Ann lives in Paris.", "What": "Bob plays chess."}


@pytest.fixture
def filled(store: InMemoryVectorStore) -> InMemoryVectorStore:
    store.add_texts(list(CHUNKS.values()), ids=["paris", "chess"])
    return store


def by_retriever(store: InMemoryVectorStore) -> Any:
    return store.as_retriever(search_kwargs={"k": 1}) | (lambda found: found[0].page_content)


def by_function(store: InMemoryVectorStore) -> Any:
    return lambda question: store.similarity_search(question, k=1)[0].page_content


def by_tool(store: InMemoryVectorStore) -> Any:
    @tool
    def look_up(question: str) -> str:
        """Look into the notes."""
        return store.similarity_search(question, k=1)[0].page_content

    return look_up


async def run(chain: Any, way: str) -> list[Any]:
    match way:
        case "batch":
            return chain.batch(QUESTIONS)
        case "batch_as_completed":
            return [answer for _, answer in chain.batch_as_completed(QUESTIONS)]
        case "abatch":
            return await chain.abatch(QUESTIONS)
        case _:
            return [answer async for _, answer in chain.abatch_as_completed(QUESTIONS)]


def asked(graph: EvolutionGraph, recording: Recording, answer: OperationSpan) -> set[str]:
    """The queries of the searches behind an answer."""
    searches = {op.origin: op for op in kinds(recording, "retrieve")}
    read = [searches[v.origin] for v in answer.inputs if v.ref.startswith("context:")]
    return {v.content for search in read for v in search.inputs if v.role == "query"}


@pytest.mark.parametrize("context", [by_retriever, by_function, by_tool])
@pytest.mark.parametrize("around", ["no span", "a span"])
@pytest.mark.parametrize("way", ["batch", "batch_as_completed", "abatch", "abatch_as_completed"])
async def test_each_answer_of_a_batch_has_its_own_question(
    way: str, around: str, context: Any, filled: InMemoryVectorStore, model: ChatOpenAI, recording: Recording
) -> None:
    prompt = ChatPromptTemplate.from_template(QUOTING)
    chain: Any = {"context": context(filled), "question": lambda question: question} | prompt | model
    with recording.tracer.start_as_current_span("session") if around == "a span" else nullcontext():
        assert len(await run(chain, way)) == len(QUESTIONS)

    graph, answers = graph_of(recording), kinds(recording, "respond")
    own = [contents(graph, answer.origin, "query") for answer in answers]
    assert sorted(map(sorted, own)) == sorted([question] for question in QUESTIONS)
    for answer, questions in zip(answers, own, strict=True):
        assert asked(graph, recording, answer) == questions
        assert contents(graph, answer.origin, "chunk") == {CHUNKS[question.split()[0]] for question in questions}


async def test_an_ended_run_is_dropped(filled: InMemoryVectorStore, model: ChatOpenAI, recording: Recording) -> None:
    chain: Any = {"context": by_retriever(filled)} | ChatPromptTemplate.from_template(SILENT) | model
    patches: Any = LangChainInstrumentor().patches
    during: list[int] = []
    chain = chain | (lambda answer: during.append(len(patches.runs)) or answer)
    chain.batch(QUESTIONS)
    gc.collect()
    assert during[0] >= len(QUESTIONS)
    assert len(patches.runs) == 0
