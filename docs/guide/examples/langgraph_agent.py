"""An agent with two memories: what it knows about a user in a store, what was said in a checkpointed thread."""

import os
import uuid
from typing import Annotated

from langchain_core.messages import HumanMessage, RemoveMessage
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.graph import END, START, MessagesState, StateGraph
from langgraph.store.base import BaseStore
from langgraph.store.memory import InMemoryStore

model = ChatOpenAI(model=os.environ.get("MODEL", "gpt-5-mini"))
embedder = OpenAIEmbeddings(
    model=os.environ.get("EMBEDDER", "text-embedding-3-small"), check_embedding_ctx_length=False
)
KEEP = 4


class State(MessagesState):
    user: Annotated[str, "whose memories"]


def remember(state: State, *, store: BaseStore) -> dict:
    """Statements become memories of the user."""
    said = state["messages"][-1].content
    if not said.endswith("?"):
        topic = said.split()[1]  # "My dog is ...": one memory per topic, the newest counts
        store.put(("users", state["user"]), topic, {"text": said})
    return {}


def answer(state: State, *, store: BaseStore) -> dict:
    """Answer from the memories and from the thread."""
    asked = state["messages"][-1].content
    known = "\n".join(item.value["text"] for item in store.search(("users", state["user"]), query=asked, limit=1))
    return {"messages": [model.invoke([("system", f"You know:\n{known}"), *state["messages"]])]}


def trim(state: State) -> dict:
    """Only the newest messages stay in the thread."""
    return {"messages": [RemoveMessage(id=message.id) for message in state["messages"][:-KEEP]]}


def main() -> None:
    graph = StateGraph(State)
    for node in (remember, answer, trim):
        graph.add_node(node.__name__, node)
    for one, other in ((START, "remember"), ("remember", "answer"), ("answer", "trim"), ("trim", END)):
        graph.add_edge(one, other)
    index = {"embed": embedder, "dims": int(os.environ.get("DIMENSIONS", "1536"))}
    agent = graph.compile(checkpointer=InMemorySaver(), store=InMemoryStore(index=index))
    thread = {"configurable": {"thread_id": str(uuid.uuid4())}}
    for said in (
        "My dog is called Rex.",
        "My train leaves on Friday.",
        "My train leaves on Saturday.",
        "When does my train leave?",
    ):
        state = agent.invoke({"messages": [HumanMessage(said)], "user": "ana"}, thread)
    print(state["messages"][-1].content)
    print(len(state["messages"]), "messages in the thread")


if __name__ == "__main__":
    main()
