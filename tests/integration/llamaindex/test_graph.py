"""The evolution graph of a chunk, from the exported spans of a real LlamaIndex."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import networkx as nx
import pytest
from llama_index.core import (
    Document,
    StorageContext,
    VectorStoreIndex,
    load_index_from_storage,
)
from llama_index.core.ingestion import DocstoreStrategy, IngestionPipeline
from llama_index.core.postprocessor import LLMRerank
from llama_index.core.schema import TextNode
from llama_index.core.settings import Settings
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.vector_stores import SimpleVectorStore

from memtrace_otel.capture import origins
from memtrace_otel.graph import EvolutionGraph, OperationKey, VersionKey
from memtrace_otel.graph.keys import NodeKey
from memtrace_otel.instrumentation.llamaindex import LlamaIndexInstrumentor
from memtrace_otel.model import OperationSpan, content_digest, ref_kind
from tests.conftest import Recording
from tests.integration.llamaindex.conftest import (
    CHESS,
    PARIS,
    RagModel,
    graph_of,
    index_of,
    operations,
    reads,
    splitter,
)

pytestmark = pytest.mark.usefixtures("instrumented")

ALICE, BOB = "Where does Alice live?", "What does Bob play?"


def versions(nodes: Iterable[NodeKey]) -> list[VersionKey]:
    """The variables among the nodes of a graph."""
    return [node for node in nodes if isinstance(node, VersionKey)]


def refs_of(graph: EvolutionGraph, answer: Any) -> set[str]:
    """The refs in the slice of an answering operation."""
    return {node.ref for node in versions(graph.slice_of_answer(answer.origin))}


def assert_sound(graph: EvolutionGraph) -> None:
    """No circle; no stored version descends from a question or from a later operation."""
    flow = nx.DiGraph((one, other) for one, other, kind in graph.edges(data="type") if kind in ("read", "produced"))
    assert nx.is_directed_acyclic_graph(flow)
    stored = [
        node for node in graph if isinstance(node, VersionKey) and ref_kind(node.ref) in ("chunk", "document", "state")
    ]
    assert stored
    for version in stored:
        ancestors = graph.ancestors(version)
        assert "query" not in {ref_kind(node.ref) for node in ancestors if isinstance(node, VersionKey)}
        made = graph.operation(version.origin)
        before = [graph.operation(node.origin) for node in ancestors if isinstance(node, OperationKey) and made]
        assert [one for one in before if one.start > made.start and not is_inside(graph, one, made)] == []


def is_inside(graph: EvolutionGraph, operation: OperationSpan, around: OperationSpan) -> bool:
    """Whether an operation is a step of an operation that began earlier."""
    parent = graph.operation(f"{operation.trace_id}-{operation.parent_id}")
    return parent is not None and (parent.origin == around.origin or is_inside(graph, parent, around))


def test_an_answer_is_followed_to_its_document(recording: Recording, model: RagModel) -> None:
    index = index_of(PARIS, CHESS, "Carol lives in Rome.")
    engine = index.as_query_engine(similarity_top_k=3, node_postprocessors=[LLMRerank(top_n=1)])
    model.script += ["Doc: 1, Relevance: 9", "In Paris."]
    response = engine.query(ALICE)
    graph = graph_of(recording)
    assert_sound(graph)
    (chat,) = operations(recording, "chat")
    (used,) = response.source_nodes
    retrieval, rerank = operations(recording, "retrieval")[0], operations(recording, "memtrace.rerank")[0]
    assert refs_of(graph, chat) == {
        f"answer:{chat.span_id}",
        f"query:{content_digest(ALICE)}",
        f"context:{rerank.span_id}",
        f"chunk:{used.node_id}",
        "document:d1",
    }
    assert len(reads(retrieval, "hit")) == 3


def test_two_questions_do_not_leak(recording: Recording, model: RagModel) -> None:
    index = index_of(PARIS, CHESS)
    engine = index.as_query_engine(similarity_top_k=2)
    model.script += ["Same answer.", "Same answer."]
    engine.query(ALICE)
    engine.query(BOB)
    graph = graph_of(recording)
    assert_sound(graph)
    one, other = operations(recording, "chat")
    for answer, question, foreign in ((one, ALICE, BOB), (other, BOB, ALICE)):
        refs = refs_of(graph, answer)
        assert f"query:{content_digest(question)}" in refs
        assert f"query:{content_digest(foreign)}" not in refs
        assert len([ref for ref in refs if ref.startswith("answer:")]) == 1
        assert {ref for ref in refs if ref.startswith("document:")} == {"document:d1", "document:d2"}


def test_equal_chunks_of_two_documents_stay_separate(recording: Recording) -> None:
    index = index_of("Moments later.", "Moments later.")
    graph = graph_of(recording)
    nodes = list(index.docstore.docs.values())
    assert len(nodes) == 2
    assert {v.ref for v in versions(graph) if v.ref.startswith("chunk:")} == {f"chunk:{node.node_id}" for node in nodes}
    for node in nodes:
        created = graph.history(f"chunk:{node.node_id}")[-1]
        documents = {v.ref for v in versions(graph.ancestors(created)) if ref_kind(v.ref) == "document"}
        assert documents == {f"document:{node.ref_doc_id}"}


@pytest.mark.parametrize("how", ["update", "refresh"])
def test_a_new_document_leaves_tombstones_and_new_versions(how: str, recording: Recording) -> None:
    index = index_of(PARIS, CHESS)
    old = index.as_retriever(similarity_top_k=1).retrieve(ALICE)[0].node_id
    recording_before = operations(recording)[-1]
    moved = Document(text="Alice lives in Lyon with her dog.", doc_id="d1")
    if how == "update":
        index.update_ref_doc(moved)
    else:
        assert index.refresh_ref_docs([moved, Document(text=CHESS, doc_id="d2")]) == [True, False]
    new = index.as_retriever(similarity_top_k=1).retrieve(ALICE)[0].node_id
    graph = graph_of(recording)
    assert_sound(graph)
    assert graph.is_tombstone(graph.history(f"chunk:{old}")[-1])
    assert not graph.is_tombstone(graph.history(f"chunk:{new}")[-1])
    first, second = graph.history("document:d1")
    assert first.origin != second.origin
    assert graph.operation(second.origin).start > recording_before.start
    if how == "refresh":
        (refresh,) = operations(recording, "upsert_memory")[1:]
        assert [(v.ref, v.action) for v in refresh.outputs] == [("document:d1", "UPDATE"), ("document:d2", "NONE")]
        assert len(graph.history("document:d2")) == 1


@pytest.mark.parametrize("kind", ["sync", "async"])
async def test_a_pipeline_skips_replaces_and_deletes(kind: str, recording: Recording) -> None:
    pipeline = IngestionPipeline(
        transformations=[splitter(), Settings.embed_model],
        docstore=SimpleDocumentStore(),
        vector_store=SimpleVectorStore(),
        docstore_strategy=DocstoreStrategy.UPSERTS_AND_DELETE,
    )

    async def run(**texts: str) -> None:
        documents = [Document(text=text, doc_id=id) for id, text in texts.items()]
        await pipeline.arun(documents=documents) if kind == "async" else pipeline.run(documents=documents)

    await run(d1=PARIS, d2=CHESS, d3="Carol sings.")
    await run(d1="Alice lives in Lyon.", d2=CHESS)
    first, second = operations(recording, "upsert_memory")
    assert [(v.ref, v.action) for v in first.outputs] == [(f"document:d{n}", "ADD") for n in (1, 2, 3)]
    assert [(v.ref, v.action) for v in second.outputs] == [("document:d1", "UPDATE"), ("document:d2", "NONE")]
    deleted = [v.ref for span in operations(recording, "delete_memory") for v in span.outputs if v.action == "DELETE"]
    assert [ref for ref in deleted if ref.startswith("document:")] == ["document:d3"]
    assert len(deleted) == 3
    graph = graph_of(recording)
    assert_sound(graph)
    # The document store holds copies of documents and nodes: one writer per version.
    for chunk in {v.ref for span in operations(recording, "create_memory") for v in span.outputs}:
        assert [graph.operation(v.origin).kind for v in graph.history(chunk)][:2] == ["segment", "create"]


def test_deleted_nodes_leave_tombstones(recording: Recording) -> None:
    index = VectorStoreIndex([TextNode(text=PARIS, id_="one"), TextNode(text=CHESS, id_="two")])
    index.delete_nodes(["one"], delete_from_docstore=True)
    index.insert_nodes([TextNode(text=f"{CHESS} And cards.", id_="two")])
    graph = graph_of(recording)
    assert graph.is_tombstone(graph.history("chunk:one")[-1])
    created, updated = graph.history("chunk:two")
    assert graph.operation(created.origin).name == "create_memory"
    assert graph.operation(updated.origin).name == "upsert_memory"


def test_another_process_finds_the_stored_records(recording: Recording, tmp_path: Any) -> None:
    index = index_of(PARIS, CHESS)
    index.storage_context.persist(tmp_path)
    LlamaIndexInstrumentor().uninstrument()
    origins().forget()
    LlamaIndexInstrumentor().instrument(tracer_provider=recording.provider)
    loaded = load_index_from_storage(StorageContext.from_defaults(persist_dir=str(tmp_path)))
    loaded.as_retriever(similarity_top_k=1).retrieve(ALICE)
    (retrieval,) = operations(recording, "retrieval")
    assert [v.origin for v in reads(retrieval, "hit")] == [""]
    graph = graph_of(recording)
    (read,) = (read for read in graph.inputs(retrieval.origin) if read.role == "hit")
    assert read.inferred
    assert graph.operation(read.version.origin).name == "create_memory"


def test_an_unchanged_document_is_the_same_version(recording: Recording) -> None:
    index_of(PARIS).insert(Document(text=PARIS, id_="d1"))
    first, second = operations(recording, "upsert_memory")
    assert [(v.ref, v.action) for v in (*first.outputs, *second.outputs)] == [
        ("document:d1", "ADD"),
        ("document:d1", "NONE"),
    ]
    cuts = operations(recording, "memtrace.segment")
    assert [cut.inputs[0].origin for cut in cuts] == [first.origin, first.origin]


def test_two_indexes_in_memory_have_two_scopes(recording: Recording) -> None:
    ann, bob = index_of(PARIS), index_of(CHESS)
    ann_wrote, bob_wrote = operations(recording, "create_memory")
    assert ann_wrote.scope != bob_wrote.scope
    ann.delete_ref_doc("d1")
    delete = operations(recording)[-1]
    assert delete.scope == ann_wrote.scope
    assert {v.ref for v in delete.outputs} == {ann_wrote.outputs[0].ref, "document:d1"}
    assert len(delete.inputs) == 2  # the chunk and its document: both were written for this owner
    assert bob.as_retriever().retrieve("chess")
    assert [hit.origin for hit in reads(operations(recording)[-1], "hit")] == [bob_wrote.origin]
