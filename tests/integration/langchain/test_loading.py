"""Chunks in a vector store and an answer from them, under opentelemetry-instrument."""

from __future__ import annotations

import pytest

from tests.integration.langchain.conftest import ChatStub
from tests.integration.loading import LoadingContract


class TestLangChain(LoadingContract):
    entry_point = "memtrace_langchain"
    operations = frozenset({("langchain", "memtrace.segment"), ("langchain", "create_memory")})
    source = """
from langchain_core.documents import Document
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_openai import ChatOpenAI, OpenAIEmbeddings
from langchain_text_splitters import CharacterTextSplitter

store = InMemoryVectorStore(OpenAIEmbeddings(model="stub", check_embedding_ctx_length=False))
splitter = CharacterTextSplitter(separator="\\n", chunk_size=1, chunk_overlap=0)
store.add_documents(splitter.split_documents([Document("The oven is broken.\\nThe train leaves on Friday.")]))
found = store.as_retriever(search_kwargs={"k": 1}).invoke("When does the train leave?")
ChatOpenAI(model="stub").invoke(f"{found[0].page_content}\\nWhen does the train leave?")
print("done")
"""

    @pytest.fixture
    def url(self, server: ChatStub) -> str:
        return server.url
