"""LlamaIndex under opentelemetry-instrument: index, retrieval and answer."""

from __future__ import annotations

import pytest

from tests.integration.llamaindex.conftest import RagModel
from tests.integration.loading import LoadingContract


class TestLlamaIndex(LoadingContract):
    entry_point = "memtrace_llamaindex"
    operations = frozenset({("llamaindex", "memtrace.segment"), ("llamaindex", "upsert_memory")})
    source = """
import os
from llama_index.core import Document, Settings, VectorStoreIndex
from llama_index.core.node_parser import SentenceSplitter
from llama_index.embeddings.openai import OpenAIEmbedding
from llama_index.llms.openai_like import OpenAILike

url = os.environ["OPENAI_BASE_URL"]
Settings.llm = OpenAILike(model="stub", api_base=url, is_chat_model=True, context_window=4096)
Settings.embed_model = OpenAIEmbedding(model_name="stub", api_base=url)
Settings.tokenizer = str.split
splitter = SentenceSplitter(chunk_size=100, chunk_overlap=0)
index = VectorStoreIndex.from_documents([Document(text="The train leaves on Friday.")], transformations=[splitter])
index.as_query_engine().query("When does the train leave?")
print("done")
"""

    @pytest.fixture
    def url(self, model: RagModel) -> str:
        return model.url
