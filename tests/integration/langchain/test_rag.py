"""Naive RAG on LangChain: load, split, add, retrieve, answer; the slice of the answer has the loaded document."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable
from typing import Any

import networkx as nx
import pytest
from langchain_chroma import Chroma
from langchain_core.documents import Document
from langchain_core.prompts import ChatPromptTemplate
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_openai import ChatOpenAI
from langchain_text_splitters import MarkdownHeaderTextSplitter, RecursiveJsonSplitter

from memtrace_otel.graph import EvolutionGraph, OperationKey, VersionKey
from memtrace_otel.model import ref_kind
from tests.conftest import Recording
from tests.integration.langchain.conftest import (
    ChatStub,
    Hashed,
    Notes,
    by_line,
    contents,
    graph_of,
    kinds,
    names,
    operations,
)

pytestmark = pytest.mark.usefixtures("instrumented", "content_on")

PROMPT = ChatPromptTemplate.from_template("Context: {context}\nQuestion: {question}")
_numbers = itertools.count()


@pytest.fixture(params=["in memory", "chroma"])
def rag_store(request: pytest.FixtureRequest) -> Any:
    if request.param == "chroma":
        return Chroma(f"rag-{next(_numbers)}", Hashed())
    return InMemoryVectorStore(Hashed())


def asking(store: Any, model: ChatOpenAI, recording: Recording, k: int = 1) -> Callable[[str], str]:
    """A chain that answers, each question in a trace of its own."""
    context = store.as_retriever(search_kwargs={"k": k}) | (lambda found: "\n".join(d.page_content for d in found))
    chain: Any = {"context": context, "question": lambda asked: asked} | PROMPT | model

    def ask(question: str) -> str:
        with recording.tracer.start_as_current_span("turn"):
            return chain.invoke(question).content

    return ask


def acyclic(graph: EvolutionGraph) -> bool:
    edges = graph.edges(data="type")
    return nx.is_directed_acyclic_graph(nx.DiGraph((a, b) for a, b, kind in edges if kind in ("read", "produced")))


def test_an_answer_leads_to_its_own_question_and_document(
    rag_store: Any, model: ChatOpenAI, server: ChatStub, recording: Recording
) -> None:
    notes = Notes(ann="Ann lives in Paris.\nAnn drinks tea.", bob="Bob plays chess.\nBob lives in Rome.")
    rag_store.add_documents(by_line(add_start_index=True).split_documents(notes.load()))
    ask = asking(rag_store, model, recording)
    server.script = ["In Paris.", "Chess."]
    assert (ask("Where is it that Ann lives?"), ask("What is it that Bob plays?")) == ("In Paris.", "Chess.")

    assert names(recording) == [
        "memtrace.ingest",
        "memtrace.segment",
        "create_memory",
        "retrieval",
        "chat stub",
        "retrieval",
        "chat stub",
    ]
    graph = graph_of(recording)
    assert acyclic(graph)
    first, second = kinds(recording, "respond")
    assert contents(graph, first.origin, "query") == {"Where is it that Ann lives?"}
    assert contents(graph, second.origin, "query") == {"What is it that Bob plays?"}
    assert contents(graph, first.origin, "chunk") == {"Ann lives in Paris."}
    assert contents(graph, second.origin, "chunk") == {"Bob plays chess."}
    assert contents(graph, first.origin, "document") == {"Ann lives in Paris.\nAnn drinks tea."}
    assert contents(graph, second.origin, "document") == {"Bob plays chess.\nBob lives in Rome."}
    through = [op.kind for op in graph.operations() if OperationKey(op.origin) in graph.slice_of_answer(first.origin)]
    assert sorted(through) == ["create", "ingest", "respond", "retrieve", "segment"]
    reads = [read for op in graph.operations() for read in graph.inputs(op.origin)]
    assert {ref_kind(read.version.ref) for read in reads if not read.version.origin} == {"query"}
    assert not any(read.inferred for read in reads if read.operation.origin not in (first.origin, second.origin))


def test_no_chunk_has_a_query_or_a_later_operation_as_source(
    rag_store: Any, model: ChatOpenAI, recording: Recording
) -> None:
    ask = asking(rag_store, model, recording)
    for number, text in enumerate(("moments later", "Ann lives in Paris.", "moments later", "Ann lives in Rome.")):
        ask(f"What about {text}")
        rag_store.add_documents(by_line().split_documents([Document(text, metadata={"source": f"s{number}"})]))
        rag_store.add_texts([text, text], ids=[f"a{number}", "b"])

    graph = graph_of(recording)
    assert acyclic(graph)
    stored = {v for op in kinds(recording, "create", "update") for v in graph.outputs(op.origin)}
    assert len(stored) == 12
    for version in stored:
        ancestors = graph.ancestors(version)
        assert "query" not in {ref_kind(node.ref) for node in ancestors if isinstance(node, VersionKey)}
        written = graph.operation(version.origin)
        made = [graph.operation(node.origin) for node in ancestors if isinstance(node, OperationKey)]
        assert written is not None
        assert all(op is not None and op.start <= written.start for op in made)
    assert len(graph.history("chunk:b")) == 4  # one record, four versions, although two have the same text


def test_a_chunk_added_again_is_a_new_version_and_a_deleted_one_has_a_tombstone(
    rag_store: Any, model: ChatOpenAI, server: ChatStub, recording: Recording
) -> None:
    rag_store.add_documents([Document("Ann lives in Paris.", id="n1")])
    rag_store.add_documents([Document("Ann lives in Rome now.", id="n1"), Document("Bob plays chess.", id="n2")])
    ask = asking(rag_store, model, recording)
    server.script = ["In Rome."]
    ask("Where is it that Ann lives?")
    rag_store.delete(["n1"])
    rag_store.add_documents([Document("Ann lives in Oslo.", id="n1")])

    graph = graph_of(recording)
    assert [op.name for op in kinds(recording, "create", "update", "delete")] == [
        "create_memory",
        "upsert_memory",
        "delete_memory",
        "create_memory",
    ]
    history = graph.history("chunk:n1")
    assert [graph.content(version) for version in history] == [
        "Ann lives in Paris.",
        "Ann lives in Rome now.",
        "",
        "Ann lives in Oslo.",
    ]
    assert [graph.is_tombstone(version) for version in history] == [False, False, True, False]
    upsert = kinds(recording, "create")[1]
    actions = {variable.ref: variable.action for variable in upsert.outputs}
    assert actions == {"chunk:n1": "UPDATE", "chunk:n2": "ADD"}
    [answer] = kinds(recording, "respond")
    assert contents(graph, answer.origin, "document") == {"Ann lives in Paris.", "Ann lives in Rome now."}


def test_a_batch_links_each_chunk_to_one_document(store: InMemoryVectorStore, recording: Recording) -> None:
    notes = Notes(**{f"s{n}": f"text {n}" for n in range(10)})
    store.add_documents(by_line().split_documents(notes.load()))
    _, segment, create = operations(recording)
    assert list(segment.flow) == [(n, n) for n in range(10)]
    assert list(create.flow) == [(n, n) for n in range(10)]


def test_equal_chunks_of_one_document_have_two_refs(store: InMemoryVectorStore, recording: Recording) -> None:
    chunks = by_line().split_documents([Document("moments later\nshe left\nmoments later", metadata={"source": "s"})])
    store.add_documents(chunks)
    segment, create = operations(recording)
    assert len({variable.ref for variable in segment.outputs}) == 3
    assert [variable.ref for variable in create.inputs] == [variable.ref for variable in segment.outputs]
    assert "inferred" not in create.incomplete


def test_markdown_sections_have_the_loaded_document_as_source(store: InMemoryVectorStore, recording: Recording) -> None:
    [loaded] = Notes(s="# Home\nAnn lives in Paris.\n# Play\nBob plays chess.").load()
    store.add_documents(MarkdownHeaderTextSplitter([("#", "title")]).split_text(loaded.page_content))
    ingest, segment, create = operations(recording)
    assert [(v.ref, v.origin) for v in segment.inputs] == [("document:s", ingest.origin)]
    assert list(segment.flow) == [(0, 0), (0, 1)]
    assert [(v.ref, v.origin) for v in create.inputs] == [(v.ref, segment.origin) for v in segment.outputs]


def test_json_chunks_have_the_json_text_as_source(recording: Recording) -> None:
    data: list[dict[str, Any]] = [{"lives": "Ann lives in Paris."}, {"plays": "Bob plays chess.", "with": "Carol."}]
    parts = RecursiveJsonSplitter().create_documents(data)
    [segment] = operations(recording)
    assert [v.content for v in segment.inputs] == [json.dumps(item) for item in data]
    assert [v.content for v in segment.outputs] == [part.page_content for part in parts]
    assert list(segment.flow) == [(0, 0), (1, 1)]


def test_a_nested_splitter_gets_no_span(recording: Recording) -> None:
    class Sections(MarkdownHeaderTextSplitter):
        def split_documents(self, documents: list[Document]) -> list[Document]:
            sections = [section for document in documents for section in self.split_text(document.page_content)]
            return by_line().split_documents(sections)

    notes = [Document("# Home\nAnn left.\nBob left."), Document("# Play\nCarol came.")]
    assert len(Sections([("#", "title")]).split_documents(notes)) == 3
    [segment] = operations(recording)
    assert [v.content for v in segment.inputs] == [note.page_content for note in notes]
    assert list(segment.flow) == [(0, 0), (0, 1), (1, 2)]


def test_copied_chunks_are_found_by_their_content(store: InMemoryVectorStore, recording: Recording) -> None:
    chunks = by_line(add_start_index=True).split_documents([Document("one\ntwo", metadata={"source": "s"})])
    copies = [Document(chunk.page_content, metadata={**chunk.metadata, "tenant": "t"}) for chunk in chunks]
    del chunks
    store.add_documents(copies)
    store.add_texts(["two"])
    segment, create, again = operations(recording)
    assert [(v.ref, v.origin) for v in create.inputs] == [(v.ref, segment.origin) for v in segment.outputs]
    assert [v.ref for v in again.inputs] == [segment.outputs[1].ref]


async def test_a_streamed_answer_reads_records_of_a_store_without_ids(
    model: ChatOpenAI, server: ChatStub, recording: Recording
) -> None:
    class Shelf(InMemoryVectorStore):
        """Returns documents without ids, as many custom stores do."""

        def similarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
            found = super().similarity_search(query, k, **kwargs)
            return [Document(document.page_content, metadata=document.metadata) for document in found]

        async def asimilarity_search(self, query: str, k: int = 4, **kwargs: Any) -> list[Document]:
            return self.similarity_search(query, k, **kwargs)

    shelf = Shelf(Hashed())
    await shelf.aadd_documents([Document("Ann lives in Paris."), Document("Bob plays chess.")])
    retriever = shelf.as_retriever(search_kwargs={"k": 1})
    chain: Any = {"context": retriever, "question": lambda asked: asked} | PROMPT | model
    server.script = ["In Paris, I think."]
    with recording.tracer.start_as_current_span("turn"):
        chunks = [chunk.content async for chunk in chain.astream("Where is it that Ann lives?")]
    assert "".join(chunks) == "In Paris, I think."
    create, retrieval, answer = operations(recording)
    graph = graph_of(recording)
    [hit] = [variable for variable in retrieval.inputs if variable.role == "hit"]
    assert (hit.ref, hit.origin) == (create.outputs[0].ref, create.origin)
    assert hit.score is not None
    assert contents(graph, answer.origin, "document") == {"Ann lives in Paris."}
    assert [variable.content for variable in answer.outputs] == ["In Paris, I think."]


async def test_a_chain_outside_a_span_is_a_turn(
    store: InMemoryVectorStore, model: ChatOpenAI, server: ChatStub, recording: Recording
) -> None:
    store.add_texts(["Ann lives in Paris.", "Bob plays chess."], ids=["paris", "chess"])
    context = store.as_retriever(search_kwargs={"k": 1}) | (lambda found: found[0].page_content)
    chain: Any = {"context": context, "question": lambda asked: asked} | PROMPT | model
    server.script = ["In Paris.", "Chess.", "In Paris."]
    assert chain.invoke("Where is it that Ann lives?").content == "In Paris."
    assert (await chain.ainvoke("What is it that Bob plays?")).content == "Chess."
    assert "".join(chunk.content for chunk in chain.stream("Where is it that Ann lives?")) == "In Paris."
    graph = graph_of(recording)
    ann, bob, again = kinds(recording, "respond")
    assert len({op.trace_id for op in operations(recording)}) == 7  # nobody has joined the traces of the program
    for answer, question, chunk in (
        (ann, "Where is it that Ann lives?", "Ann lives in Paris."),
        (bob, "What is it that Bob plays?", "Bob plays chess."),
        (again, "Where is it that Ann lives?", "Ann lives in Paris."),
    ):
        assert contents(graph, answer.origin, "query") == {question}
        assert contents(graph, answer.origin, "chunk") == {chunk}
    searches = [op.origin for op in kinds(recording, "retrieve")]
    read = [[v.origin for v in answer.inputs if v.ref.startswith("context:")] for answer in (ann, bob, again)]
    assert read == [[origin] for origin in searches]


@pytest.mark.parametrize("end", ["reset_collection", "delete_collection"])
def test_a_deleted_collection_leaves_tombstones(end: str, recording: Recording) -> None:
    kept = Chroma(f"rag-{next(_numbers)}", Hashed())
    gone = Chroma(f"rag-{next(_numbers)}", Hashed())
    for store in (kept, gone):
        store.add_texts(["Ann lives in Paris.", "Bob plays chess."], ids=["1", "2"])
    getattr(gone, end)()
    Chroma(gone._collection_name, Hashed()).add_texts(["Ann lives in Rome."], ids=["1"])

    [ended] = [op for op in kinds(recording, "delete") if op.name == "delete_memory_store"]
    filled = operations(recording)[1]
    assert [(v.role, v.ref, v.origin) for v in ended.inputs] == [
        ("previous", ref, filled.origin) for ref in ("chunk:1", "chunk:2")
    ]
    assert [(v.ref, v.action) for v in ended.outputs] == [("chunk:1", "DELETE"), ("chunk:2", "DELETE")]
    again = operations(recording)[-1]
    assert [v.action for v in again.outputs] == ["ADD"]
    assert not [v for v in again.inputs if v.role == "previous"]
