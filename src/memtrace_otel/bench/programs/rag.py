"""Retrieval on LangChain: each turn becomes a document in a vector store, and documents answer a question."""

# pyright: basic, reportMissingImports=false
# LangChain is not in the development environment.

from __future__ import annotations

from pathlib import Path
from typing import Any

from langchain_core.documents import Document
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_openai import ChatOpenAI, OpenAIEmbeddings

from memtrace_otel.bench.programs.assistant import ANSWER, MODEL, Assistant, shortened


class Program(Assistant):
    """Indexes what is told; `asking` gives the filter and the number of documents."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.store: Any = InMemoryVectorStore(OpenAIEmbeddings(model=MODEL, check_embedding_ctx_length=False))
        prompt: Any = ChatPromptTemplate.from_messages([("system", ANSWER), ("user", "{question}")])
        self.chain = prompt | ChatOpenAI(model=MODEL)

    def chat(self, user: str, date: str, text: str, thread: int) -> None:
        """Index one turn."""
        with self.turn(user):
            self.store.add_documents([Document(f"[{date}] {text}", metadata={"user": user, "thread": thread})])

    def answer(self, user: str, question: str) -> str:
        """Retrieve, fill the prompt, answer."""
        asking, found = self.asking, []

        def fits(document: Document) -> bool:
            of = document.metadata
            return of["user"] == asking["searched"] and asking["thread"] in (None, of["thread"])

        if asking["searches"]:
            retriever = self.store.as_retriever(search_kwargs={"k": asking["hits"], "filter": fits})
            found = [document.page_content for document in retriever.invoke(question)]
        memories = "\n".join(f"- {text}" for text in shortened(found, asking["lost"]))
        return self.chain.invoke({"memories": memories or "(nothing yet)", "question": question}).content
