"""Map-reduce by `Send`: the answer put together of those of its nodes comes from all that they were given."""

from __future__ import annotations

import operator
from contextlib import nullcontext
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import HumanMessage, SystemMessage
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_openai import ChatOpenAI
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, StateGraph
from langgraph.types import Send

from tests.conftest import Recording
from tests.integration.langchain.conftest import ChatStub, Hashed, contents, graph_of, kinds

pytestmark = pytest.mark.usefixtures("instrumented", "content_on")

NOTES = {name: f"Notes of the {name}, which nobody else has seen." for name in ("mill", "port", "farm")}


def said_of(name: str) -> str:
    return f"The {name} has done well this year: three men have been hired, and a second floor is being built."


class State(TypedDict):
    names: list[str]
    summaries: Annotated[list[str], operator.add]
    answer: str


@pytest.mark.parametrize("kept", [True, False])
@pytest.mark.parametrize("traced", [True, False])
def test_an_answer_of_several_nodes_answers(
    model: ChatOpenAI, server: ChatStub, recording: Recording, traced: bool, kept: bool
) -> None:
    store = InMemoryVectorStore(Hashed())
    store.add_texts(list(NOTES.values()), ids=list(NOTES))

    def summarise(state: dict[str, str]) -> dict[str, Any]:
        [found] = store.similarity_search(NOTES[state["name"]], k=1)
        asked = [SystemMessage(f"Notes:\n{found.page_content}"), HumanMessage(f"What of the {state['name']}?")]
        return {"summaries": [str(model.invoke(asked).content)]}

    def put_together(state: State) -> dict[str, Any]:
        listed = "\n".join(state["summaries"])
        return {"answer": model.invoke([HumanMessage(f"Summaries:\n{listed}\n\nHow was the year?")]).content}

    def split(state: State) -> list[Send]:
        return [Send("summarise", {"name": name}) for name in state["names"]]

    graph: Any = StateGraph(State)
    graph.add_node("summarise", summarise).add_node("put_together", put_together)
    graph.add_conditional_edges(START, split, ["summarise"])
    graph.add_edge("summarise", "put_together").add_edge("put_together", END)
    program = graph.compile(checkpointer=InMemorySaver() if kept else None)
    for names in (["mill", "port"], ["farm", "port"]):
        server.script = [*map(said_of, names), "A good year."]
        config: Any = {"configurable": {"thread_id": names[0]}, "max_concurrency": 1}
        with recording.tracer.start_as_current_span("turn") if traced else nullcontext():
            program.invoke({"names": names, "summaries": [], "answer": ""}, config)
    behind = [contents(graph_of(recording), answer.origin, "chunk") for answer in kinds(recording, "respond")]
    mill, port, farm = NOTES.values()
    assert behind == [{mill}, {port}, {mill, port}, {farm}, {port}, {farm, port}]
