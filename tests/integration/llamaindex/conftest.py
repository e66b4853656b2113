"""A real LlamaIndex (the release installed here) on a scripted model server."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from typing import Any

import llama_index.core
import pytest
from llama_index.core import Document, Settings, VectorStoreIndex
from llama_index.core.memory import Memory
from llama_index.core.node_parser import SentenceSplitter
from llama_index.embeddings.openai import OpenAIEmbedding
from llama_index.llms.openai_like import OpenAILike
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from packaging.version import Version

from memtrace_otel import semconv
from memtrace_otel.graph import EvolutionGraph, build_graph
from memtrace_otel.instrumentation.llamaindex import LlamaIndexInstrumentor
from memtrace_otel.model import OperationSpan, Variable
from memtrace_otel.otlp import decode_request
from tests.conftest import Recording
from tests.integration import model_stub

if Version(llama_index.core.__version__) < Version("0.14"):
    collect_ignore = ["test_coexistence.py"]  # the instrumentations of others need a newer release


class RagModel(model_stub.ModelStub):
    """Embeds like `model_stub`. A chat call without a scripted reply gets `echo`, else a numbered reply."""

    def __init__(self) -> None:
        super().__init__()
        self.RequestHandlerClass = model_stub.StreamingHandler
        self.echo = ""

    def reply(self, prompt: str) -> str | int:
        if not self.script:
            self.script.append(self.echo or f"Answer {len(self.prompts) + 1} to the question.")
        return super().reply(prompt)


@pytest.fixture(autouse=True)
def model() -> Iterator[RagModel]:
    """The model server of LlamaIndex."""
    with RagModel() as stub:
        # One client per call: an asynchronous client lives in one event loop only.
        options: dict[str, Any] = {"api_base": stub.url, "api_key": "none", "max_retries": 0, "reuse_client": False}
        Settings.llm = OpenAILike(model="stub", is_chat_model=True, context_window=4096, **options)
        Settings.embed_model = OpenAIEmbedding(model_name="stub", **options)
        Settings.tokenizer = str.split
        yield stub
    gc.collect()  # clients hold their connections until then


@pytest.fixture
def instrumented(recording: Recording) -> Iterator[Recording]:
    LlamaIndexInstrumentor().instrument(tracer_provider=recording.provider)
    yield recording
    LlamaIndexInstrumentor().uninstrument()


PARIS, CHESS = "Alice lives in Paris with her dog.", "Bob plays chess on Sundays."


def index_of(*texts: str, **options: Any) -> VectorStoreIndex:
    """A vector index over documents d1, d2, ..., each short enough to be one chunk."""
    documents = [Document(text=text, doc_id=f"d{number}") for number, text in enumerate(texts, 1)]
    return VectorStoreIndex.from_documents(documents, transformations=[splitter()], **options)


@pytest.fixture
def index(recording: Recording) -> VectorStoreIndex:
    """An index over Paris and chess, with an empty recording."""
    made = index_of(PARIS, CHESS)
    recording.clear()
    return made


def memory() -> Memory:
    """An empty chat memory."""
    return Memory.from_defaults(session_id="s1", tokenizer_fn=str.split)


def splitter(size: int = 100) -> SentenceSplitter:
    return SentenceSplitter(chunk_size=size, chunk_overlap=0)


def operations(recording: Recording, name: str | None = None) -> list[OperationSpan]:
    """The recorded operations in order of start, decoded from OTLP; with `name` the operations of this name."""
    spans = decode_request(encode_spans(recording.spans()).SerializeToString())
    return sorted((s for s in spans if s.kind and name in (None, s.name)), key=lambda span: (span.start, span.seq or 0))


def graph_of(recording: Recording) -> EvolutionGraph:
    """The evolution graph of everything recorded."""
    return build_graph(operations(recording))


def purpose(span: OperationSpan) -> str:
    """The purpose of the operation: class and method of LlamaIndex."""
    return str(span.attributes.get(semconv.OP_PURPOSE, ""))


def reads(span: OperationSpan, role: str) -> list[Variable]:
    """The inputs of one role."""
    return [variable for variable in span.inputs if variable.role == role]


def tree(recording: Recording) -> list[str]:
    """One line per operation, indented under its parent, in order of start."""
    spans = operations(recording)
    known = {span.span_id for span in spans}

    def lines(parent: str, depth: int) -> Iterator[str]:
        for span in spans:
            if (span.parent_id if span.parent_id in known else "") == parent:
                yield "  " * depth + span.name
                yield from lines(span.span_id, depth + 1)

    return list(lines("", 0))
