"""Other instrumentations beside ours: their spans are unchanged, and our spans are recorded once."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest
from llama_index.core import Document, Settings, VectorStoreIndex
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.retrievers import QueryFusionRetriever
from openinference.instrumentation.llama_index import LlamaIndexInstrumentor as OpenInference
from opentelemetry.instrumentation.genai.llama_index import LlamaIndexInstrumentor as UtilGenai
from opentelemetry.trace import StatusCode

from memtrace_otel import semconv
from memtrace_otel.instrumentation.llamaindex import LlamaIndexInstrumentor
from memtrace_otel.instrumentation.openai import OpenAIInstrumentor
from memtrace_otel.semconv import OpKind
from tests.conftest import Recording
from tests.integration.llamaindex.conftest import CHESS, PARIS, index_of, operations

OURS = (LlamaIndexInstrumentor, OpenAIInstrumentor)
_VARYING = re.compile(r"0x[0-9a-f]+|127\.0\.0\.1:\d+|[0-9a-f-]{32,36}|Answer \d+")
PEERS = pytest.mark.parametrize("theirs", [OpenInference, UtilGenai], ids=["openinference", "util-genai"])
ORDERS = pytest.mark.parametrize("first", ["ours", "theirs"])


def in_order(theirs: Any, first: str) -> tuple[Any, ...]:
    """All instrumentations, ours or theirs first."""
    return (*OURS, theirs) if first == "ours" else (theirs, *OURS)


@contextmanager
def instrumented(*kinds: Any) -> Generator[Recording]:
    """The recording under these instrumentations, installed in this order."""
    recording = Recording()
    for kind in kinds:
        kind().instrument(tracer_provider=recording.provider, skip_dep_check=True)
    try:
        yield recording
    finally:
        for kind in reversed(kinds):
            kind().uninstrument()


def record(*kinds: Any) -> Recording:
    """A small program, whole and streamed, under these instrumentations."""
    with instrumented(*kinds) as recording:
        documents = [Document(text=text, doc_id=f"d{number}") for number, text in enumerate((PARIS, CHESS), 1)]
        parser = SentenceSplitter(chunk_size=100, chunk_overlap=0, id_func=lambda i, whole: f"{whole.node_id}-{i}")
        index = VectorStoreIndex.from_documents(documents, transformations=[parser])
        index.as_query_engine(similarity_top_k=2, llm=Settings.llm).query("Where does Alice live?")
        streamed: Any = index.as_query_engine(similarity_top_k=2, streaming=True).query("What does Bob play?")
        assert "".join(streamed.response_gen)
    return recording


def enriched_in(recording: Recording) -> list[Any]:
    """The spans that carry operations of ours, in order of start."""
    return [span for span in recording.spans() if semconv.OP_KIND in (span.attributes or {})]


def theirs_in(recording: Recording) -> Counter[str]:
    """Their spans: name, their own parent, attributes without ours and without random values."""
    theirs = [span for span in recording.spans() if not span.instrumentation_scope.name.startswith("memtrace_otel")]
    own = {span.context.span_id: span for span in theirs}

    def describe(span: Any) -> str:
        above = own.get(span.parent.span_id) if span.parent else None
        attributes = sorted(item for item in span.attributes.items() if not item[0].startswith("memtrace."))
        status = span.status.status_code.name
        return f"{above.name if above else ''} > {span.name} {_VARYING.sub('', str(attributes))} {status}"

    return Counter(describe(span) for span in own.values())


@PEERS
@ORDERS
def test_the_spans_of_the_other_instrumentation_are_unchanged(theirs: Any, first: str) -> None:
    alone, together = record(theirs), record(*in_order(theirs, first))
    assert alone.spans()
    assert theirs_in(together) == theirs_in(alone)


@PEERS
@ORDERS
def test_our_spans_are_equal_and_recorded_once(theirs: Any, first: str) -> None:
    alone, together = record(*OURS), record(*in_order(theirs, first))
    kinds = [(span.attributes or {})[semconv.OP_KIND] for span in enriched_in(alone)]
    assert [(span.attributes or {})[semconv.OP_KIND] for span in enriched_in(together)] == kinds
    outputs = [ref for span in enriched_in(together) for ref in (span.attributes or {}).get(semconv.OUTPUTS, ())]
    assert len([ref for ref in outputs if ref.startswith("answer:")]) == 2


@PEERS
@ORDERS
@pytest.mark.parametrize("call", ["plain", "async", "fused"])
async def test_a_retrieval_is_one_span_of_the_other_with_our_attributes(theirs: Any, first: str, call: str) -> None:
    """The span of a fusion is the whole retrieval. The searches inside are steps."""

    async def program() -> None:
        plain = index_of(PARIS, CHESS).as_retriever(similarity_top_k=2)
        fused = QueryFusionRetriever([plain, plain], llm=Settings.llm, num_queries=1, use_async=False)
        if call == "async":
            assert len(await plain.aretrieve("Where does Alice live?")) == 2
        else:
            assert len((fused if call == "fused" else plain).retrieve("Where does Alice live?")) == 2

    with instrumented(*in_order(theirs, first)) as together:
        await program()
    searches = [span for span in enriched_in(together) if span.attributes[semconv.OP_KIND] == OpKind.RETRIEVE]
    adopted = [span for span in searches if span.name != "memtrace.retrieve"]
    assert len(adopted) == 1
    assert not adopted[0].instrumentation_scope.name.startswith("memtrace_otel")
    assert len(searches) == (3 if call == "fused" else 1)
    whole = operations(together)[-len(searches)]
    assert whole.span_id == f"{adopted[0].context.span_id:016x}"
    assert [v.ref.partition(":")[0] for v in whole.inputs] == ["query", "chunk", "chunk"]
    assert [v.ref.partition(":")[0] for v in whole.outputs] == ["context"]
    names = [span.name for span in together.spans()]
    assert semconv.RETRIEVAL not in names or theirs is UtilGenai


@PEERS
@ORDERS
def test_an_error_is_recorded_by_the_other_span(theirs: Any, first: str) -> None:
    with instrumented(*in_order(theirs, first)) as together:
        retriever = index_of(PARIS).as_retriever()
        retriever._embed_model = None
        with pytest.raises(AttributeError):
            retriever.retrieve("Where does Alice live?")
    *_, search = enriched_in(together)
    assert search.status.status_code is StatusCode.ERROR
    assert not search.instrumentation_scope.name.startswith("memtrace_otel")
