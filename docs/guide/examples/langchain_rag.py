"""Questions about a handful of notes: split, stored in Chroma, retrieved, answered; a note changes, another goes."""

import os

from langchain_chroma import Chroma
from langchain_core.documents import Document
from langchain_core.output_parsers import StrOutputParser
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.runnables import RunnablePassthrough
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from langchain_text_splitters import CharacterTextSplitter

NOTES = {
    "travel": "Ana takes the night train to Lisbon on Friday.\nAna comes back on Monday.",
    "kitchen": "The oven in the kitchen is broken until Thursday.",
}
PROMPT = ChatPromptTemplate.from_template("Answer from these notes:\n{notes}\n\nQuestion: {question}")

model = ChatOpenAI(model=os.environ.get("MODEL", "gpt-5-mini"))
embedder = OpenAIEmbeddings(
    model=os.environ.get("EMBEDDER", "text-embedding-3-small"), check_embedding_ctx_length=False
)
store = Chroma("notes", embedder)
splitter = CharacterTextSplitter(separator="\n", chunk_size=60, chunk_overlap=0, add_start_index=True)


def note(name: str, text: str) -> None:
    """Store a note; what it said before is replaced, chunk by chunk."""
    chunks = splitter.split_documents([Document(text, metadata={"source": name})])
    store.add_documents(chunks, ids=[f"{name}-{number}" for number, _ in enumerate(chunks)])


def main() -> None:
    for name, text in NOTES.items():
        note(name, text)
    retriever = store.as_retriever(search_kwargs={"k": 1})
    notes = retriever | (lambda found: "\n".join(document.page_content for document in found))
    chain = {"notes": notes, "question": RunnablePassthrough()} | PROMPT | model | StrOutputParser()

    print(chain.invoke("When does the night train take Ana to Lisbon?"))
    note("travel", "Ana takes the night train to Lisbon on Saturday.\nAna comes back on Monday.")
    print("".join(chain.stream("On which day does the night train take Ana to Lisbon?")))
    store.delete(["kitchen-0"])
    print(chain.invoke("Is the oven in the kitchen broken?"))


if __name__ == "__main__":
    main()
