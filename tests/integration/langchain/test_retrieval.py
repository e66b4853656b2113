"""Retrievers, scores, rerankers and loaders: one `retrieval` per question."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_chroma import Chroma
from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.document_loaders import BaseLoader
from langchain_core.documents import BaseDocumentCompressor, Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import InMemoryVectorStore, VectorStore

from memtrace_otel.graph import VersionKey
from memtrace_otel.instrumentation.langchain import LangChainInstrumentor
from memtrace_otel.model import OperationSpan
from memtrace_otel.semconv import RECORD_OWNER
from tests.conftest import Recording
from tests.integration.langchain.conftest import Hashed, Notes, by_line, graph_of, kinds, names, operations

pytestmark = pytest.mark.usefixtures("instrumented", "content_on")

TEXTS = ["Ann lives in Paris.", "Ann drinks tea.", "Bob plays chess."]


@pytest.fixture
def filled(store: InMemoryVectorStore, recording: Recording) -> InMemoryVectorStore:
    store.add_texts(TEXTS, ids=["paris", "tea", "chess"])
    return store


def hits(operation: OperationSpan, role: str = "hit") -> list[tuple[str, float | None]]:
    return [(v.ref, None if v.score is None else round(v.score, 2)) for v in operation.inputs if v.role == role]


@pytest.mark.parametrize(
    ("metadata", "named"),
    [
        ([{"user_id": "ann"}, {"user_id": "ann"}], True),
        ([{"user_id": "ann"}, {"user_id": "bob"}], False),
        ([{"tenant": "ann"}, {}], False),
    ],
    ids=["one owner", "two owners", "one without an owner"],
)
def test_a_write_names_the_one_owner_in_the_metadata_of_all_records(
    metadata: list[dict[str, str]], named: bool, store: InMemoryVectorStore, recording: Recording
) -> None:
    store.add_texts(TEXTS[:2], metadatas=metadata)
    [create] = operations(recording)
    assert (RECORD_OWNER in create.attributes) == named


SEARCHES = {
    "similarity": lambda store: store.similarity_search("Ann lives", k=2),
    "with scores": lambda store: store.similarity_search_with_score("Ann lives", k=2),
    "search": lambda store: store.search("Ann lives", "similarity", k=2),
    "retriever": lambda store: store.as_retriever(search_kwargs={"k": 2}).invoke("Ann lives"),
}


@pytest.mark.parametrize("search", SEARCHES.values(), ids=SEARCHES.keys())
def test_every_search_method_is_one_retrieval_with_scores(
    search: Any, filled: InMemoryVectorStore, recording: Recording
) -> None:
    search(filled)
    assert names(recording) == ["create_memory", "retrieval"]
    create, retrieval = operations(recording)
    assert hits(retrieval) == [("chunk:paris", 0.71), ("chunk:tea", 0.41)]
    assert {v.origin for v in retrieval.inputs if v.role == "hit"} == {create.origin}
    assert [v.content for v in retrieval.inputs if v.role == "query"] == ["Ann lives"]
    assert retrieval.scope == create.scope != ""
    [context] = retrieval.outputs
    assert context.content == "Ann lives in Paris.\nAnn drinks tea."


class Plain(VectorStore):
    """A custom store with plain methods only."""

    def __init__(self) -> None:
        self.held: dict[str, str] = {}

    def add_texts(self, texts: Any, metadatas: Any = None, **kwargs: Any) -> list[str]:
        made = {f"t{len(self.held) + n}": text for n, text in enumerate(texts)}
        self.held |= made
        return list(made)

    def similarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
        return [Document(text, id=id) for id, text in list(self.held.items())[:k]]

    def delete(self, ids: Any = None, **kwargs: Any) -> bool:
        return bool([self.held.pop(id) for id in ids])

    @classmethod
    def from_texts(cls, texts: Any, embedding: Any, metadatas: Any = None, **kwargs: Any) -> Any:
        made = cls()
        made.held = {f"t{n}": text for n, text in enumerate(texts)}  # fills itself in a way of its own
        return made


async def test_coroutines_that_run_plain_methods_in_threads_are_recorded_once(recording: Recording) -> None:
    store = Plain()
    with recording.tracer.start_as_current_span("turn"):
        await store.aadd_documents([Document(text) for text in TEXTS])
        await store.as_retriever(search_kwargs={"k": 1}).ainvoke("Ann?")
        await store.adelete(["t0"])
    assert names(recording) == ["create_memory", "retrieval", "delete_memory"]
    turn = recording.named("turn")[0]
    assert all(span.parent and span.parent.span_id == turn.context.span_id for span in recording.spans()[1:])
    create, retrieval, delete = operations(recording)
    assert hits(retrieval) == [("chunk:t0", None)]
    assert delete.inputs[0].origin == create.origin

    recording.clear()
    made = await Plain.afrom_documents([Document(text) for text in TEXTS], Hashed())
    made.similarity_search("Ann?", k=1)
    create, retrieval = operations(recording)
    assert [v.content for v in create.outputs] == TEXTS
    assert [v.origin for v in retrieval.inputs if v.role == "hit"] == [create.origin]


def test_iterators_reach_the_library_unconsumed(recording: Recording) -> None:
    store = Plain()
    assert store.add_texts(text for text in TEXTS) == ["t0", "t1", "t2"]
    assert list(store.held.values()) == TEXTS
    chunks = by_line().split_documents(document for document in Notes(a="one\ntwo", b="three").lazy_load())
    assert [chunk.page_content for chunk in chunks] == ["one", "two", "three"]
    create, _, _, segment = sorted(operations(recording), key=lambda op: ["create", "ingest", "segment"].index(op.kind))
    assert [v.ref for v in create.outputs] == ["chunk:t0", "chunk:t1", "chunk:t2"]
    assert "unserialisable" in create.incomplete  # the texts are the store's to consume
    assert [v.ref for v in segment.inputs] == ["document:a", "document:b"]  # read by the method below
    assert list(segment.flow) == [(0, 0), (0, 1), (1, 2)]


class Both(BaseRetriever):
    """A retriever that merges the results of two retrievers."""

    retrievers: list[BaseRetriever]
    keep: int = 1

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        found = [retriever.invoke(query, {"callbacks": run_manager.get_child()}) for retriever in self.retrievers]
        return [document for documents in found for document in documents][: self.keep]


def test_nested_retrievers_give_candidates(filled: InMemoryVectorStore, recording: Recording) -> None:
    inner = [filled.as_retriever(search_kwargs={"k": k}) for k in (1, 3)]
    Both(retrievers=list(inner)).invoke("Ann lives")
    _, retrieval = operations(recording)
    assert hits(retrieval) == [("chunk:paris", 0.71)]
    assert hits(retrieval, "candidate") == [("chunk:tea", 0.41), ("chunk:chess", 0.0)]


class Rewriting(BaseRetriever):
    """A retriever that also asks a rewritten question."""

    retriever: BaseRetriever

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        return [one for words in (query, "home town", "dog", query) for one in self.retriever.invoke(words)]


def test_rewritten_questions_are_inputs(filled: InMemoryVectorStore, recording: Recording) -> None:
    Rewriting(retriever=filled.as_retriever(search_kwargs={"k": 1})).invoke("Where does Ann live?")
    _, retrieval = operations(recording)
    asked = [v for v in retrieval.inputs if v.ref.startswith("query:")]
    assert [(v.role, v.content) for v in asked] == [
        ("query", "Where does Ann live?"),
        ("other", "home town"),
        ("other", "dog"),
    ]
    graph = graph_of(recording)
    made = VersionKey(retrieval.outputs[0].ref, retrieval.origin)
    assert {v.ref for v in asked} <= {node.ref for node in graph.ancestors(made) if isinstance(node, VersionKey)}


class Ensemble(Both):
    """A retriever that overrides `invoke`, like the ensemble retriever of LangChain."""

    def invoke(self, input: str, config: Any = None, **kwargs: Any) -> list[Document]:
        return [found for retriever in self.retrievers for found in retriever.invoke(input)][-1:]


def test_a_retriever_that_overrides_invoke_is_recorded(filled: InMemoryVectorStore, recording: Recording) -> None:
    inner = [filled.as_retriever(search_kwargs={"k": k}) for k in (1, 2)]
    Ensemble(retrievers=list(inner)).invoke("Ann lives")
    create, retrieval = operations(recording)
    assert hits(retrieval) == [("chunk:tea", 0.41)]
    assert hits(retrieval, "candidate") == [("chunk:paris", 0.71)]
    assert {v.origin for v in retrieval.inputs if v.role != "query"} == {create.origin}


class Parents(BaseRetriever):
    """A retriever that finds chunks and returns their parent documents."""

    store: InMemoryVectorStore
    parents: dict[str, Document]

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        return [self.parents[found.metadata["source"]] for found in self.store.similarity_search(query, k=1)]


def test_chunks_have_the_split_documents_as_sources(store: InMemoryVectorStore, recording: Recording) -> None:
    parent = Document("Ann lives in Paris.\nAnn drinks tea.", metadata={"source": "ann"})
    store.add_documents(by_line().split_documents([parent]))
    Parents(store=store, parents={"ann": parent}).invoke("Ann tea")
    segment, create, retrieval = operations(recording)
    assert [ref for ref, _ in hits(retrieval)] == [segment.inputs[0].ref]
    assert [v.origin for v in retrieval.inputs if v.role == "candidate"] == [create.origin]
    assert "unknown_origin" not in retrieval.incomplete


class ByLength(BaseDocumentCompressor):
    """Shortest text first; `cut` makes extracts."""

    cut: bool = False

    def compress_documents(
        self, documents: Sequence[Document], query: str, callbacks: Any = None
    ) -> Sequence[Document]:
        ordered = sorted(documents, key=lambda document: len(document.page_content))
        if not self.cut:
            return ordered[:1]
        return [Document(d.page_content.split()[-1], metadata=d.metadata) for d in ordered[:1]]


class Compressing(BaseRetriever):
    """Like the contextual compression retriever of LangChain."""

    base: BaseRetriever
    compressor: BaseDocumentCompressor

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        return list(self.compressor.compress_documents(self.base.invoke(query), query))


@pytest.mark.parametrize("cut", [False, True], ids=["reranked", "extracted"])
def test_a_compressor_is_a_rerank_step(cut: bool, filled: InMemoryVectorStore, recording: Recording) -> None:
    base = filled.as_retriever(search_kwargs={"k": 2})
    Compressing(base=base, compressor=ByLength(cut=cut)).invoke("Ann lives")
    assert names(recording) == ["create_memory", "retrieval", "memtrace.rerank"]
    create, retrieval, rerank = operations(recording)
    assert [ref for ref, _ in hits(rerank, "candidate")] == ["chunk:paris", "chunk:tea"]
    [hit] = [v for v in retrieval.inputs if v.role == "hit"]
    if not cut:
        assert [ref for ref, _ in hits(rerank)] == [hit.ref] == ["chunk:tea"]
        assert hit.origin == create.origin
        return
    assert (hit.ref, hit.origin) == (rerank.outputs[0].ref, rerank.origin)
    assert rerank.outputs[0].content == "tea."
    assert VersionKey("chunk:tea", create.origin) in graph_of(recording).ancestors(VersionKey(hit.ref, hit.origin))


class Slow(BaseLoader):
    """An async loader that uses another loader."""

    async def alazy_load(self) -> AsyncIterator[Document]:
        for document in Notes(inner="Ann lives in Paris.").lazy_load():
            yield Document(document.page_content, metadata={"source": "outer"})


async def test_lazy_documents_are_recorded_one_by_one(recording: Recording) -> None:
    lazy = Notes(a="one", b="two", c="three").lazy_load()
    assert isinstance(lazy, Iterator)
    assert names(recording) == []
    assert next(lazy).page_content == "one"
    assert [op.outputs[0].ref for op in kinds(recording, "ingest")] == ["document:a"]
    lazy.close()
    assert len(kinds(recording, "ingest")) == 1
    assert [document.page_content async for document in Slow().alazy_load()] == ["Ann lives in Paris."]
    assert [op.outputs[0].ref for op in kinds(recording, "ingest")] == ["document:a", "document:outer"]
    await Slow().aload()
    assert len(kinds(recording, "ingest")) == 3


def test_a_search_error_is_on_the_span_of_the_search(filled: InMemoryVectorStore, recording: Recording) -> None:
    filled.embedding.broken = True  # pyright: ignore
    with pytest.raises(RuntimeError, match="no embedding today"):
        filled.as_retriever().invoke("Ann?")
    assert [op.status for op in kinds(recording, "retrieve")] == ["error"]


def test_classes_made_later_are_covered_and_uncovered(recording: Recording) -> None:
    class Later(InMemoryVectorStore):
        def similarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
            return []

    Later(Hashed()).similarity_search("nothing")
    assert names(recording) == ["retrieval"]
    LangChainInstrumentor().uninstrument()
    Later(Hashed()).similarity_search("nothing")
    assert names(recording) == ["retrieval"]
    assert "__wrapped__" not in dir(vars(Later)["similarity_search"])
    LangChainInstrumentor().instrument(tracer_provider=recording.provider, skip_dep_check=True)
    Later(Hashed()).similarity_search("nothing")
    assert names(recording) == ["retrieval"] * 2


def test_equal_collection_names_in_two_folders_have_two_scopes(tmp_path: Path, recording: Recording) -> None:
    ann = Chroma(embedding_function=Hashed(), persist_directory=str(tmp_path / "ann"))
    bob = Chroma(embedding_function=Hashed(), persist_directory=str(tmp_path / "bob"))
    for store in (ann, bob):
        store.add_texts(["Somebody lives in Paris."], ids=["1"])
    ann.delete(["1"])
    assert [found.page_content for found in bob.similarity_search("Paris")] == ["Somebody lives in Paris."]
    again = Chroma(client=ann._client, embedding_function=Hashed())
    again.add_texts(["Nobody lives in Paris."], ids=["1"])

    of_ann, of_bob, deleted, read, added = operations(recording)
    assert of_ann.scope == deleted.scope == added.scope
    assert of_bob.scope == read.scope != of_ann.scope
    assert [v.origin for v in read.inputs if v.role == "hit"] == [of_bob.origin]
