"""Turns outside spans: the chains, searches and model calls of each turn."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_openai import ChatOpenAI

from memtrace_otel.model import OperationSpan
from tests.conftest import Recording
from tests.integration.langchain.conftest import ChatStub, contents, graph_of, kinds

pytestmark = pytest.mark.usefixtures("instrumented", "content_on")

PROMPT = ChatPromptTemplate.from_template("Notes: {context}\nQuestion: {question}")
ANN, BOB = "Where is it that Ann lives?", "What is it that Bob plays?"


@pytest.fixture
def store(store: InMemoryVectorStore) -> InMemoryVectorStore:
    store.add_texts(["Ann lives in Paris.", "Bob plays chess."], ids=["paris", "chess"])
    return store


@pytest.fixture
def retriever(store: InMemoryVectorStore) -> Any:
    return store.as_retriever(search_kwargs={"k": 1})


@pytest.fixture
def look_up(retriever: Any) -> Any:
    """A chain that only searches."""
    return retriever | (lambda found: found[0].page_content)


@pytest.fixture
def chain(look_up: Any, model: ChatOpenAI) -> Any:
    return {"context": look_up, "question": lambda asked: asked} | PROMPT | model


def ask(server: ChatStub, *lines: str) -> None:
    """A plain model call."""
    with openai.OpenAI(base_url=server.url, api_key="none") as client:
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "\n".join(lines)}])


def used(answer: OperationSpan, kind: str = "chunk") -> list[str]:
    """The inputs of an answer, of one kind."""
    return sorted(v.ref.partition(":")[2] for v in answer.inputs if v.role == "context" and v.ref.startswith(kind))


def searches(recording: Recording) -> list[str]:
    """The contexts of the searches."""
    return [operation.span_id for operation in kinds(recording, "retrieve")]


def test_each_chain_in_sequence_is_a_turn(chain: Any, server: ChatStub, recording: Recording) -> None:
    for question in (ANN, ANN, BOB):
        chain.invoke(question)
    ask(server, "Hello there.")
    graph, answers = graph_of(recording), kinds(recording, "respond")
    assert [used(answer, "context") for answer in answers] == [*([made] for made in searches(recording)), []]
    asked = [contents(graph, answer.origin, "query") for answer in answers]
    assert asked == [{ANN}, {ANN}, {BOB}, {"Hello there."}]
    assert [used(answer) for answer in answers] == [["paris"], ["paris"], ["chess"], []]


def test_a_model_call_reads_quoted_answers_of_earlier_chains(
    look_up: Any, server: ChatStub, recording: Recording
) -> None:
    notes = [look_up.invoke(ANN), look_up.invoke(BOB)]
    ask(server, *notes, ANN)
    ask(server, notes[0], ANN)
    first, second = kinds(recording, "respond")
    assert (used(first), used(second)) == (["chess", "paris"], ["paris"])
    assert used(first, "context") == sorted(searches(recording))


def test_a_chain_reads_searches_before_the_chain(retriever: Any, model: ChatOpenAI, recording: Recording) -> None:
    found = [*retriever.invoke(ANN), *retriever.invoke(BOB)]
    notes = "\n".join(document.page_content for document in found)
    (PROMPT | model).invoke({"context": notes, "question": ANN})
    [answer] = kinds(recording, "respond")
    assert used(answer) == ["chess", "paris"]
    assert contents(graph_of(recording), answer.origin, "query") == {ANN, BOB}
