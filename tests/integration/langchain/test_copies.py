"""Copied documents: recognised by content within a turn, never in another turn."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from langchain_core.callbacks import CallbackManagerForRetrieverRun
from langchain_core.documents import Document
from langchain_core.retrievers import BaseRetriever
from langchain_core.vectorstores import InMemoryVectorStore
from opentelemetry.trace import use_span

from memtrace_otel.capture import operation
from memtrace_otel.instrumentation.steps import RECORDED
from tests.conftest import Recording
from tests.integration.langchain.conftest import Hashed, by_line, kinds

pytestmark = pytest.mark.usefixtures("instrumented", "content_on")

TEXT = "Ann lives in Paris."


def note() -> Document:
    return Document(TEXT, metadata={"source": "notes"})


def copies(documents: list[Document]) -> list[Document]:
    return [Document(document.page_content, metadata=dict(document.metadata)) for document in documents]


GIVEN: dict[str, Callable[[InMemoryVectorStore], object]] = {
    "split_documents": lambda store: by_line().split_documents([note()]),
    "split_text": lambda store: by_line().split_text(TEXT),
    "add_documents": lambda store: store.add_documents([note()]),
    "add_texts": lambda store: store.add_texts([TEXT]),
}


@pytest.mark.parametrize("give", GIVEN.values(), ids=GIVEN.keys())
def test_an_equal_text_of_another_turn_is_a_new_document(
    give: Callable[[InMemoryVectorStore], object], store: InMemoryVectorStore, recording: Recording
) -> None:
    for work in (lambda store: by_line().split_documents([note(), Document("Bob.")]), give):
        with recording.tracer.start_as_current_span("turn"):
            work(store)
    *_, operation = kinds(recording, "segment", "create")
    [given] = operation.inputs
    assert (given.ref.partition(":")[0], given.origin) == ("document", "")
    assert "inferred" not in operation.incomplete


def test_all_steps_give_a_document_the_same_ref(store: InMemoryVectorStore, recording: Recording) -> None:
    document = Document(TEXT)
    with recording.tracer.start_as_current_span("turn"):
        by_line().split_documents([document])
        by_line().split_documents([Document(TEXT)])
    with recording.tracer.start_as_current_span("turn"):
        by_line().split_documents([document])
    first, equal, again = [operation.inputs[0].ref for operation in kinds(recording, "segment")]
    assert first == again != equal


def test_copies_belong_to_the_chunks_of_their_turn(recording: Recording) -> None:
    cut: list[list[Document]] = []
    tracer, stores = recording.tracer, [InMemoryVectorStore(Hashed()) for _ in range(2)]
    turns = [tracer.start_span("turn") for _ in stores]
    for turn in turns:
        with use_span(turn):
            cut.append(by_line().split_documents([note()]))
    for turn, store, chunks in zip(turns, stores, cut, strict=True):
        with use_span(turn):
            store.add_documents(copies(chunks))
    segments = kinds(recording, "segment")
    for segment, create in zip(segments, kinds(recording, "create"), strict=True):
        assert [v.origin for v in create.inputs] == [segment.origin]
        assert "inferred" not in create.incomplete


class Remembering(BaseRetriever):
    """A retriever with its own database access."""

    held: list[Document]

    def _get_relevant_documents(self, query: str, *, run_manager: CallbackManagerForRetrieverRun) -> list[Document]:
        return copies(self.held)


def test_a_custom_retriever_returns_stored_records(store: InMemoryVectorStore, recording: Recording) -> None:
    with recording.tracer.start_as_current_span("turn"):
        chunks = by_line().split_documents([note()])
        store.add_documents(chunks)
    with recording.tracer.start_as_current_span("turn"):
        Remembering(held=chunks).invoke("Where does Ann live?")
    create, retrieval = kinds(recording, "create", "retrieve")
    [hit] = [v for v in retrieval.inputs if v.role == "hit"]
    assert (hit.ref, hit.origin) == (create.outputs[0].ref, create.origin)
    assert "inferred" in retrieval.incomplete


async def test_store_calls_inside_a_memory_system_get_no_spans(
    store: InMemoryVectorStore, recording: Recording
) -> None:
    with operation("create_memory", kind="create", system="own", tracer=recording.tracer):
        at_work = RECORDED.set(True)
        store.add_texts([TEXT], ids=["1"])
        store.similarity_search("Ann")
        await store.asimilarity_search_with_score("Ann")
        store.delete(["1"])
        RECORDED.reset(at_work)
    assert len(recording.spans()) == 1
    store.add_texts([TEXT], ids=["1"])
    assert len(recording.spans()) == 2
