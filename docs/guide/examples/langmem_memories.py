"""Memories that langmem extracts from conversations, some of them later and in the background."""

import os

from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from langgraph.func import entrypoint
from langgraph.store.memory import InMemoryStore
from langmem import ReflectionExecutor, create_memory_store_manager, create_search_memory_tool

model = ChatOpenAI(model=os.environ.get("MODEL", "gpt-5-mini"))
embedder = OpenAIEmbeddings(
    model=os.environ.get("EMBEDDER", "text-embedding-3-small"), check_embedding_ctx_length=False
)
store = InMemoryStore(index={"embed": embedder, "dims": int(os.environ.get("DIMENSIONS", "1536"))})
manager = create_memory_store_manager(model, namespace=("memories", "{user}"), enable_deletes=True)
search = create_search_memory_tool(namespace=("memories", "ana"), store=store)
config = {"configurable": {"user": "ana"}}


@entrypoint(store=store)
def remember(text: str) -> int:
    """Extract what is worth keeping, now."""
    return len(manager.invoke({"messages": [{"role": "user", "content": text}]}, config=config))


@entrypoint(store=store)
def answer(question: str) -> str:
    known = search.invoke({"query": question, "limit": 1})
    return model.invoke(f"You know: {known}\n\n{question}").content


def main() -> None:
    print(remember.invoke("I moved to Lisbon. My dog is called Rex.", config), "memories")
    with ReflectionExecutor(manager, store=store) as later:
        payload = {"messages": [{"role": "user", "content": "I am allergic to nuts."}]}
        later.submit(payload, config=config, after_seconds=0).result(timeout=60)
    print(answer.invoke("What must nobody put into my food, nuts?", config))


if __name__ == "__main__":
    main()
