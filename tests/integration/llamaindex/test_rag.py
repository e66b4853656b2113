"""Ingestion, retrieval, reranking and synthesis, from documents to answers."""

from __future__ import annotations

import pytest
from llama_index.core import Document, get_response_synthesizer
from llama_index.core.postprocessor import LLMRerank, SimilarityPostprocessor
from llama_index.core.response_synthesizers import ResponseMode
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.schema import TextNode

from memtrace_otel.instrumentation.openai import OpenAIInstrumentor
from tests.conftest import Recording
from tests.integration.llamaindex.conftest import (
    CHESS,
    PARIS,
    RagModel,
    index_of,
    operations,
    purpose,
    reads,
    splitter,
    tree,
)

pytestmark = pytest.mark.usefixtures("instrumented")

QUESTION = "Where does Alice live?"


def test_documents_become_chunks_and_chunks_are_stored(recording: Recording, content_on: None) -> None:
    index_of(f"{PARIS} {CHESS}", "Carol sings.", show_progress=False)
    ingest, segment, create = operations(recording)
    assert tree(recording) == ["upsert_memory", "  memtrace.segment", "  create_memory"]
    assert purpose(ingest) == "VectorStoreIndex.from_documents"
    assert [(v.ref, v.action) for v in ingest.outputs] == [("document:d1", "ADD"), ("document:d2", "ADD")]
    assert [(v.ref, v.origin) for v in segment.inputs] == [(f"document:d{n}", ingest.origin) for n in (1, 2)]
    assert segment.flow == ((0, 0), (1, 1))
    assert [v.content for v in segment.outputs] == [f"{PARIS} {CHESS}", "Carol sings."]
    assert [(v.ref, v.origin) for v in create.inputs] == [(v.ref, segment.origin) for v in segment.outputs]
    assert [(v.ref, v.action) for v in create.outputs] == [(v.ref, "ADD") for v in segment.outputs]
    assert create.flow == ((0, 0), (1, 1))


def test_one_document_is_cut_into_many(recording: Recording) -> None:
    text = " ".join(f"Sentence number {n} has seven words here." for n in range(10))
    nodes = splitter(15).get_nodes_from_documents([Document(text=text, doc_id="a"), Document(text=CHESS, doc_id="b")])
    (segment,) = operations(recording)
    assert len(nodes) > 4
    assert segment.flow == (*((0, place) for place in range(len(nodes) - 1)), (1, len(nodes) - 1))


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_query_is_one_answer_with_its_retrieval(
    kind: str, recording: Recording, model: RagModel, content_on: None
) -> None:
    engine = index_of(PARIS, CHESS).as_query_engine(similarity_top_k=2)
    recording.clear()
    model.script.append("In Paris.")
    response = engine.query(QUESTION) if kind == "sync" else await engine.aquery(QUESTION)
    assert str(response) == "In Paris."
    chat, retrieval = operations(recording)
    assert tree(recording) == ["chat", "  retrieval"]
    assert [v.content for v in reads(chat, "query")] == [QUESTION] == [v.content for v in reads(retrieval, "query")]
    hits = reads(retrieval, "hit")
    assert [hit.ref.partition(":")[2] for hit in hits] == [node.node_id for node in response.source_nodes]
    assert [hit.score for hit in hits] == [pytest.approx(node.score) for node in response.source_nodes]
    (context,) = retrieval.outputs
    assert context.content == f"{PARIS}\n{CHESS}"
    assert [(v.ref, v.origin) for v in reads(chat, "context")] == [
        (context.ref, retrieval.origin),
        *((hit.ref, hit.origin) for hit in hits),
    ]
    assert {v.score for v in chat.inputs} == {None}
    (answer,) = chat.outputs
    assert (answer.ref, answer.content) == (f"answer:{chat.span_id}", "In Paris.")
    assert {span.scope for span in (chat, retrieval)} == {chat.scope}
    assert chat.scope


@pytest.mark.parametrize("mode", [ResponseMode.COMPACT, ResponseMode.REFINE, ResponseMode.TREE_SUMMARIZE])
def test_several_model_calls_are_one_answer(mode: ResponseMode, recording: Recording, model: RagModel) -> None:
    index = index_of(PARIS, CHESS)
    recording.clear()
    OpenAIInstrumentor().instrument(tracer_provider=recording.provider)
    try:
        index.as_query_engine(similarity_top_k=2, response_mode=mode).query(QUESTION)
    finally:
        OpenAIInstrumentor().uninstrument()
    answers = [v.ref for span in operations(recording) for v in span.outputs if v.ref.startswith("answer:")]
    assert len(model.prompts) == (2 if mode == ResponseMode.REFINE else 1)
    assert len(answers) == 1


def test_a_reranker_sees_candidates_and_returns_hits(recording: Recording, model: RagModel) -> None:
    index = index_of(PARIS, CHESS, "Carol lives in Rome.")
    reranker = LLMRerank(top_n=2)
    engine = index.as_query_engine(similarity_top_k=3, node_postprocessors=[reranker])
    recording.clear()
    model.script.append("Doc: 3, Relevance: 9\nDoc: 1, Relevance: 7")
    response = engine.query(QUESTION)
    assert tree(recording) == ["chat", "  retrieval", "  memtrace.rerank"]
    chat, retrieval, rerank = operations(recording)
    found = [hit.ref for hit in reads(retrieval, "hit")]
    assert [v.ref for v in reads(rerank, "candidate")] == found
    assert [v.ref for v in reads(rerank, "hit")] == [found[2], found[0]]
    assert [v.score for v in reads(rerank, "hit")] == [9.0, 7.0]
    assert [v.origin for v in reads(rerank, "context")] == [retrieval.origin]
    assert purpose(rerank) == "LLMRerank.postprocess_nodes"
    assert [f"chunk:{node.node_id}" for node in response.source_nodes] == [found[2], found[0]]
    assert [v.ref for v in reads(chat, "context")] == [f"context:{rerank.span_id}", found[2], found[0]]
    hits = [i for i, v in enumerate(rerank.inputs) if v.role in ("query", "hit")]
    assert [i for i, _ in rerank.flow] == hits


def test_a_retriever_of_retrievers_is_one_retrieval(recording: Recording, model: RagModel, content_on: None) -> None:
    one, other = index_of(PARIS, CHESS), index_of("Carol lives in Rome.")
    retriever = QueryFusionRetriever(
        [one.as_retriever(), other.as_retriever()], num_queries=2, similarity_top_k=2, use_async=False
    )
    recording.clear()
    model.script.append("Alice home city")
    nodes = retriever.retrieve(QUESTION)
    outer, *inner = operations(recording)
    assert (outer.name, {span.name for span in inner}) == ("retrieval", {"memtrace.retrieve"})
    assert {span.parent_id for span in inner} == {outer.span_id}
    assert len(inner) == 4
    assert [hit.ref for hit in reads(outer, "hit")] == [f"chunk:{node.node_id}" for node in nodes]
    assert [v.content for v in reads(outer, "query") + reads(outer, "other")] == [QUESTION, "Alice home city"]
    assert all(hit.origin for span in (outer, *inner) for hit in reads(span, "hit"))
    found = {hit.ref: hit.origin for span in inner for hit in reads(span, "hit")}
    left_out = {hit.ref: hit.origin for hit in reads(outer, "candidate")}
    assert left_out == {ref: found[ref] for ref in found.keys() - {hit.ref for hit in reads(outer, "hit")}} != {}


def test_postprocessors_and_synthesizers_work_without_an_engine(recording: Recording) -> None:
    index = index_of(PARIS, CHESS)
    nodes = index.as_retriever(similarity_top_k=2).retrieve(QUESTION)
    kept = SimilarityPostprocessor(similarity_cutoff=0.0).postprocess_nodes(nodes, query_str=QUESTION)
    recording.clear()
    get_response_synthesizer().synthesize(QUESTION, kept[:1])
    (chat,) = operations(recording)
    assert chat.name == "chat"
    assert [v.ref for v in reads(chat, "context")][1:] == [f"chunk:{kept[0].node_id}"]
    assert len(reads(chat, "context")) == 2


def test_an_answer_without_hits_has_no_context(recording: Recording) -> None:
    response = get_response_synthesizer().synthesize(QUESTION, [])
    (chat,) = operations(recording)
    assert str(response) == "Empty Response"
    assert [v.role for v in chat.inputs] == ["query"]


def test_nodes_of_the_application_are_their_own_sources(recording: Recording, content_on: None) -> None:
    index = index_of()
    recording.clear()
    index.insert_nodes([TextNode(text=PARIS, id_="mine")])
    (create,) = operations(recording)
    assert [(v.ref, v.content) for v in create.inputs] == [("document:mine", PARIS)]
    assert [(v.ref, v.action) for v in create.outputs] == [("chunk:mine", "ADD")]


def test_an_error_of_the_model_reaches_the_program_and_the_span(recording: Recording, model: RagModel) -> None:
    engine = index_of(PARIS).as_query_engine()
    recording.clear()
    model.script.append(500)
    with pytest.raises(Exception, match="scripted failure"):
        engine.query(QUESTION)
    chat, retrieval = operations(recording)
    assert (chat.status, retrieval.status) == ("error", "unset")
    assert not chat.outputs
    assert reads(chat, "query")
