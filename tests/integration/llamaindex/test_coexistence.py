"""Beside the instrumentations of others: their spans are the same with and without ours, and ours are not doubled."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest
from llama_index.core import Document, Settings, VectorStoreIndex
from llama_index.core.node_parser import SentenceSplitter
from openinference.instrumentation.llama_index import LlamaIndexInstrumentor as OpenInference
from opentelemetry.instrumentation.genai.llama_index import LlamaIndexInstrumentor as UtilGenai

from memtrace_otel import semconv
from memtrace_otel.instrumentation.llamaindex import LlamaIndexInstrumentor
from memtrace_otel.instrumentation.openai import OpenAIInstrumentor
from tests.conftest import Recording
from tests.integration.llamaindex.conftest import CHESS, PARIS

OURS = (LlamaIndexInstrumentor, OpenAIInstrumentor)
_VARYING = re.compile(r"0x[0-9a-f]+|127\.0\.0\.1:\d+|[0-9a-f-]{32,36}|Answer \d+")
PEERS = pytest.mark.parametrize("theirs", [OpenInference, UtilGenai], ids=["openinference", "util-genai"])


def record(*kinds: Any) -> Recording:
    """A small program, whole and streamed, under these instrumentations."""
    recording = Recording()
    for kind in kinds:
        kind().instrument(tracer_provider=recording.provider, skip_dep_check=True)
    try:
        documents = [Document(text=text, doc_id=f"d{number}") for number, text in enumerate((PARIS, CHESS), 1)]
        parser = SentenceSplitter(chunk_size=100, chunk_overlap=0, id_func=lambda i, whole: f"{whole.node_id}-{i}")
        index = VectorStoreIndex.from_documents(documents, transformations=[parser])
        index.as_query_engine(similarity_top_k=2, llm=Settings.llm).query("Where does Alice live?")
        streamed: Any = index.as_query_engine(similarity_top_k=2, streaming=True).query("What does Bob play?")
        assert "".join(streamed.response_gen)
    finally:
        for kind in reversed(kinds):
            kind().uninstrument()
    return recording


def ours_in(recording: Recording) -> list[Any]:
    """Our spans in order of start."""
    return [span for span in recording.spans() if semconv.OP_KIND in (span.attributes or {})]


def theirs_in(recording: Recording) -> Counter[str]:
    """Their spans: name, parent among their own, attributes without what differs between any two runs."""
    own = {span.context.span_id: span for span in recording.spans() if span not in ours_in(recording)}

    def describe(span: Any) -> str:
        above = own.get(span.parent.span_id) if span.parent else None
        attributes = _VARYING.sub("", str(sorted(span.attributes.items())))
        return f"{above.name if above else ''} > {span.name} {attributes}"

    return Counter(describe(span) for span in own.values())


@PEERS
@pytest.mark.parametrize("first", ["ours", "theirs"])
def test_their_spans_stay_what_they_are(theirs: Any, first: str) -> None:
    alone = record(theirs)
    together = record(*OURS, theirs) if first == "ours" else record(theirs, *OURS)
    assert alone.spans()
    assert theirs_in(together) == theirs_in(alone)


@PEERS
def test_ours_are_the_same_and_not_doubled(theirs: Any) -> None:
    alone, together = record(*OURS), record(*OURS, theirs)
    assert [span.name for span in ours_in(together)] == [span.name for span in ours_in(alone)]
    outputs = [ref for span in ours_in(together) for ref in (span.attributes or {}).get(semconv.OUTPUTS, ())]
    assert len([ref for ref in outputs if ref.startswith("answer:")]) == 2
