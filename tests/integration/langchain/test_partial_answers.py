"""Map-reduce by chains: the answer put together of those of others comes from all that they were given."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest
from langchain_core.messages import HumanMessage
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnableLambda
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_openai import ChatOpenAI

from tests.conftest import Recording
from tests.integration.langchain.conftest import ChatStub, Hashed, contents, graph_of, kinds

pytestmark = pytest.mark.usefixtures("instrumented", "content_on")

NOTES = {name: f"Notes of the {name}, which nobody else has seen." for name in ("mill", "port", "farm")}


def said_of(name: str) -> str:
    return f"The {name} has done well this year: three men have been hired, and a second floor is being built."


def in_turn(summarise: Any, put_together: Any) -> None:
    """Chains that the program calls itself."""
    put_together.invoke("\n".join([summarise.invoke(name) for name in NOTES]))


def in_a_batch(summarise: Any, put_together: Any) -> None:
    """One chain that runs the others in threads."""
    config: Any = {"max_concurrency": 1}
    summaries = RunnableLambda(lambda names: "\n".join(summarise.batch(names, config)))
    (summaries | put_together).invoke(list(NOTES))


@pytest.mark.parametrize("run", [in_turn, in_a_batch])
@pytest.mark.parametrize("traced", [True, False])
def test_an_answer_of_several_chains_answers(
    model: ChatOpenAI, server: ChatStub, recording: Recording, run: Callable[[Any, Any], None], traced: bool
) -> None:
    store = InMemoryVectorStore(Hashed())
    store.add_texts(list(NOTES.values()), ids=list(NOTES))
    server.script = [*map(said_of, NOTES), "A good year."]
    text = RunnableLambda(lambda message: str(message.content))
    notes = RunnableLambda(lambda name: {"notes": store.similarity_search(NOTES[name], k=1)[0].page_content})
    summarise = notes | ChatPromptTemplate.from_messages([("human", "Notes:\n{notes}\nSummarise them.")]) | model | text
    put_together = ChatPromptTemplate.from_template("Summaries:\n{summaries}\n\nHow was the year?") | model
    with recording.tracer.start_as_current_span("turn") if traced else nullcontext():
        run(summarise, put_together)
    behind = [contents(graph_of(recording), answer.origin, "chunk") for answer in kinds(recording, "respond")]
    assert behind == [*({note} for note in NOTES.values()), set(NOTES.values())]


def test_messages_with_equal_small_ids_are_of_their_own_conversations(
    model: ChatOpenAI, server: ChatStub, recording: Recording
) -> None:
    names = ("Ann", "Bob")
    server.script = [f"Hello {name}" for name in names]
    for name in names:
        with recording.tracer.start_as_current_span("turn"):
            model.invoke([HumanMessage(f"My name is {name}", id="1")])
    asked = [answer.inputs[0] for answer in kinds(recording, "respond")]
    assert [(v.role, v.content) for v in asked] == [("query", f"My name is {name}") for name in names]
    assert len({v.ref for v in asked}) == 2
