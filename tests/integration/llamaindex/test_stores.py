"""Vector stores of other packages, and stores used without an index."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

import pytest
from llama_index.core import Document, StorageContext, VectorStoreIndex
from llama_index.core.embeddings import MockEmbedding
from llama_index.core.schema import TextNode
from llama_index.core.settings import Settings
from llama_index.core.vector_stores import MetadataFilter, MetadataFilters, SimpleVectorStore, VectorStoreQuery
from llama_index.vector_stores.qdrant import QdrantVectorStore
from qdrant_client import QdrantClient

from memtrace_otel import semconv
from memtrace_otel.capture import scope_id
from memtrace_otel.graph import VersionKey
from memtrace_otel.instrumentation.llamaindex import LlamaIndexInstrumentor
from tests.conftest import Recording
from tests.integration.llamaindex.conftest import CHESS, PARIS, graph_of, operations, reads, splitter

pytestmark = pytest.mark.usefixtures("instrumented")


def qdrant(folder: Path, name: str = "notes") -> QdrantVectorStore:
    return QdrantVectorStore(collection_name=name, client=QdrantClient(path=str(folder / name)))


def embedded(text: str, id: str) -> TextNode:
    return TextNode(text=text, id_=id, embedding=Settings.embed_model.get_text_embedding(text))


def test_a_collection_has_a_scope(recording: Recording, tmp_path: Path) -> None:
    store = qdrant(tmp_path)
    index = VectorStoreIndex.from_documents(
        [Document(text=text, doc_id=f"d{number}") for number, text in enumerate((PARIS, CHESS), 1)],
        transformations=[splitter()],
        storage_context=StorageContext.from_defaults(vector_store=store),
    )
    found = VectorStoreIndex.from_vector_store(store).as_retriever(similarity_top_k=1).retrieve("Where is Alice?")
    ingest, _, create, retrieval = operations(recording)
    assert {span.scope for span in (ingest, create, retrieval)} == {scope_id("notes", app=tmp_path / "notes")}
    assert create.attributes[semconv.GEN_AI_MEMORY_STORE_ID] == "notes"
    (hit,) = reads(retrieval, "hit")
    assert (hit.ref, hit.origin, hit.score) == (
        f"chunk:{found[0].node_id}",
        create.origin,
        pytest.approx(found[0].score),
    )
    index.delete_ref_doc("d1")
    delete = operations(recording)[-1]
    assert {(v.ref, v.action) for v in delete.outputs} == {(hit.ref, "DELETE"), ("document:d1", "DELETE")}
    store.client.close()


def test_a_store_is_recorded_without_an_index(recording: Recording) -> None:
    store = SimpleVectorStore()
    store.add([embedded(PARIS, "one"), embedded(CHESS, "two")])
    store.add([embedded(PARIS, "one"), embedded(f"{CHESS} And cards.", "two"), embedded("Carol.", "three")])
    query = VectorStoreQuery(
        query_str="Alice", query_embedding=Settings.embed_model.get_query_embedding("Alice"), similarity_top_k=1
    )
    found: Any = store.query(query)
    store.delete_nodes(["one"])
    store.clear()
    first, second, retrieval, delete, clear = operations(recording)
    assert [span.name for span in (first, second)] == ["create_memory", "upsert_memory"]
    assert [(v.ref, v.action) for v in second.outputs] == [
        ("chunk:one", "NONE"),
        ("chunk:two", "UPDATE"),
        ("chunk:three", "ADD"),
    ]
    assert [(v.ref, v.origin) for v in reads(second, "previous")] == [
        ("chunk:one", first.origin),
        ("chunk:two", first.origin),
    ]
    assert (retrieval.name, reads(retrieval, "hit")[0].ref) == ("retrieval", f"chunk:{found.ids[0]}")
    assert [(v.ref, v.action) for v in delete.outputs] == [("chunk:one", "DELETE")]
    assert (clear.name, {v.ref for v in clear.outputs}) == ("delete_memory_store", {"chunk:two", "chunk:three"})
    graph = graph_of(recording)
    assert all(graph.is_tombstone(graph.history(f"chunk:{id}")[-1]) for id in ("one", "two", "three"))


def test_deleting_an_unknown_record_leaves_no_tombstone(recording: Recording, tmp_path: Path) -> None:
    store = SimpleVectorStore()
    store.add([embedded(PARIS, "one")])
    store.delete_nodes(["one", "never"])
    store.delete_nodes(["one"])
    named, theirs = qdrant(tmp_path), str(uuid.uuid4())
    named.add([embedded(PARIS, str(uuid.uuid4()))])
    named.delete_nodes([theirs])  # another process can have stored the record
    both, again, elsewhere = (span for span in operations(recording) if span.kind == "delete")
    assert [v.ref for v in both.outputs] == ["chunk:one"]
    assert "unknown_record" in both.incomplete
    assert (again.outputs, "unknown_record" in again.incomplete) == ((), True)
    assert [v.ref for v in elsewhere.outputs] == [f"chunk:{theirs}"]
    assert "unknown_record" not in elsewhere.incomplete
    named.client.close()


def about(whom: str) -> dict[str, Any]:
    """Arguments of `delete_nodes`: a filter on the metadata of nodes."""
    return {"filters": MetadataFilters(filters=[MetadataFilter(key="who", value=whom)])}


def test_records_deleted_by_a_filter_are_unknown(recording: Recording, tmp_path: Path) -> None:
    store, other = qdrant(tmp_path), qdrant(tmp_path, "other")
    node = embedded(PARIS, str(uuid.uuid4()))
    node.metadata["who"] = "alice"
    for one in (store, other):
        one.add([node])
    store.delete_nodes(**about("alice"))
    for one in (store, other):
        one.add([node])
        one.client.close()
    *_, delete, again, kept = operations(recording)
    assert (delete.name, delete.outputs, "unknown_record" in delete.incomplete) == ("delete_memory", (), True)
    assert semconv.GEN_AI_MEMORY_RECORD_COUNT not in delete.attributes
    assert [[v.action for v in span.outputs] for span in (again, kept)] == [["UPDATE"], ["NONE"]]


def test_a_class_defined_later_is_wrapped_and_given_back(recording: Recording) -> None:
    class Logged(SimpleVectorStore):
        def add(self, nodes: Any, **kwargs: Any) -> list[str]:
            return super().add(nodes, **kwargs)

    Logged().add([embedded(PARIS, "one")])
    assert [span.name for span in operations(recording)] == ["create_memory"]
    LlamaIndexInstrumentor().uninstrument()

    class Later(SimpleVectorStore):
        def add(self, nodes: Any, **kwargs: Any) -> list[str]:
            return super().add(nodes, **kwargs)

    for kind in (Logged, Later):
        kind().add([embedded(PARIS, "one")])
        assert type(vars(kind)["add"]).__name__ == "function"
    assert len(operations(recording)) == 1


def test_a_large_batch_is_recorded_completely(recording: Recording, content_on: None) -> None:
    text = "Alice said that this is a fact of some length, longer than most. " * 20
    documents = [Document(text=f"{number} {text}", doc_id=f"d{number}") for number in range(230)]
    index = VectorStoreIndex.from_documents(documents, transformations=[splitter(2000)], embed_model=MockEmbedding(4))
    index.insert_nodes([TextNode(text=f"{number} {text}", id_=f"n{number}") for number in range(230)])
    index.vector_store.clear()
    spans = operations(recording)
    assert not any("budget" in span.incomplete for span in spans)
    assert len([span for span in spans if span.name == "create_memory"]) == 6
    graph = graph_of(recording)
    for number in range(230):
        (version, *_) = graph.history(f"chunk:n{number}")
        assert graph.is_tombstone(graph.history(f"chunk:n{number}")[-1])
        assert {v.ref for v in graph.ancestors(version) if isinstance(v, VersionKey)} == {f"document:n{number}"}
    for node in index.docstore.docs.values():
        if node.ref_doc_id:
            cut, stored, _ = graph.history(f"chunk:{node.node_id}")
            assert graph.operation(cut.origin).kind == "segment"
            sources = {v.ref for v in graph.ancestors(stored) if isinstance(v, VersionKey)}
            assert sources == {f"document:{node.ref_doc_id}", cut.ref}
