"""A real LangChain (the installed release) with a local embedding and a scripted model server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

import pytest
from langchain_core.document_loaders import BaseLoader
from langchain_core.documents import Document
from langchain_core.embeddings import Embeddings
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_openai import ChatOpenAI
from langchain_text_splitters import CharacterTextSplitter
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.trace import ReadableSpan

from memtrace_otel import semconv
from memtrace_otel.graph import EvolutionGraph, VersionKey, build_graph
from memtrace_otel.instrumentation.chat_history import conversations
from memtrace_otel.instrumentation.langchain import LangChainInstrumentor
from memtrace_otel.instrumentation.openai import OpenAIInstrumentor
from memtrace_otel.model import OperationSpan
from memtrace_otel.otlp import decode_request
from tests.conftest import Recording
from tests.integration import model_stub


class Hashed(Embeddings):
    """Texts that share words are near; `broken` raises, `hangs` waits until it is cancelled (a thread: for a while)."""

    def __init__(self) -> None:
        self.broken = self.hangs = False

    def embed_documents(self, texts: list[str]) -> list[list[float]]:
        if self.broken:
            raise RuntimeError("no embedding today")
        if self.hangs:
            time.sleep(0.3)
        return [model_stub.embedding(text) for text in texts]

    def embed_query(self, text: str) -> list[float]:
        return self.embed_documents([text])[0]

    async def aembed_documents(self, texts: list[str]) -> list[list[float]]:
        if self.hangs:
            await asyncio.Event().wait()
        return self.embed_documents(texts)

    async def aembed_query(self, text: str) -> list[float]:
        return (await self.aembed_documents([text]))[0]


class Notes(BaseLoader):
    """Documents by source."""

    def __init__(self, **notes: str) -> None:
        self.notes = notes

    def lazy_load(self) -> Iterator[Document]:
        for source, text in self.notes.items():
            yield Document(text, metadata={"source": source})


class ChatStub(model_stub.ModelStub):
    """A scripted model server that also streams and calls tools: `script` takes `{"calls": [[name, arguments]]}`."""

    def __init__(self) -> None:
        super().__init__()
        self.RequestHandlerClass = model_stub.StreamingHandler


@pytest.fixture
def server() -> Iterator[ChatStub]:
    with ChatStub() as stub:
        yield stub


@pytest.fixture
def model(server: ChatStub) -> ChatOpenAI:
    return ChatOpenAI(model="stub", base_url=server.url, api_key="none", max_retries=0)  # pyright: ignore


@pytest.fixture
def instrumented(recording: Recording) -> Iterator[None]:
    conversations.forget()
    instrumentors = (OpenAIInstrumentor(), LangChainInstrumentor())
    for instrumentor in instrumentors:
        instrumentor.instrument(tracer_provider=recording.provider, skip_dep_check=True)
    yield
    for instrumentor in reversed(instrumentors):
        instrumentor.uninstrument()


@pytest.fixture
def store() -> InMemoryVectorStore:
    return InMemoryVectorStore(Hashed())


def by_line(**options: Any) -> CharacterTextSplitter:
    """One chunk per line."""
    return CharacterTextSplitter(separator="\n", chunk_size=1, chunk_overlap=0, **options)


def operations(recording: Recording) -> list[OperationSpan]:
    """The recorded operations, decoded from the exported bytes, without foreign spans."""
    spans = decode_request(encode_spans(recording.spans()).SerializeToString())
    return [span for span in spans if span.kind and span.system]


def kinds(recording: Recording, *wanted: str) -> list[OperationSpan]:
    """The recorded operations of these kinds, by start."""
    return [span for span in operations(recording) if span.kind in wanted]


def graph_of(recording: Recording) -> EvolutionGraph:
    """The graph of the recorded operations."""
    return build_graph(operations(recording))


def contents(graph: EvolutionGraph, answer: str, kind: str) -> set[str]:
    """The contents of the variables of a kind in the slice of an answer."""
    slice_ = graph.slice_of_answer(answer)
    return {graph.content(n) for n in slice_ if isinstance(n, VersionKey) and n.ref.startswith(f"{kind}:")}


def names(recording: Recording) -> list[str]:
    """Names of our spans, by start."""
    return [span.name for span in ours(recording)]


def ours(recording: Recording) -> list[ReadableSpan]:
    """The spans that carry our attributes."""
    return [span for span in recording.spans() if semconv.OP_KIND in (span.attributes or {})]
