"""LangChain documents as variables: names and recognition, without LangChain itself."""

from __future__ import annotations

import gc
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from memtrace_otel.capture import Operation
from memtrace_otel.instrumentation.langchain import documents
from memtrace_otel.instrumentation.langchain.documents import Known, KnownTexts, Text, store_name, text_of, texts_of


@dataclass(eq=False)
class Document:
    page_content: str
    metadata: dict[str, Any] = field(default_factory=dict)
    id: str | None = None


@dataclass(eq=False)
class Step:
    """An operation in a trace of so many; `alone`: without a span around it."""

    trace: str
    alone: bool = False

    @property
    def origin(self) -> str:
        return f"{self.trace:>032}-{id(self):016x}"

    def is_alone(self) -> bool:
        return self.alone

    def wrote(self, known: KnownTexts, text: str | Document, ref: str, **options: Any) -> Known:
        """The variable that a text is from now on."""
        version = Known(ref, self.origin, options.pop("scope", ""))
        known.learn(cast(Operation, self), text_of(text) or Text(""), version, **options)
        return version

    def finds(self, known: KnownTexts, text: Text, **options: Any) -> Known | None:
        """What a text is for this operation, by what it says."""
        return known.find(text, cast(Operation, self), **options)


STEP = Step("1")


def root(text: Text, reader: Step = STEP) -> str:
    return text.root(cast(Operation, reader)).ref


def test_names_of_documents() -> None:
    assert Text("a", {"source": "s"}).document_ref == "document:s"
    assert Text("a", {"source": "s", "page": 3}).document_ref == "document:s#page=3"
    assert Text("a", {"source": "s"}, "7").document_ref == "document:7"
    assert Text("a").document_ref == Text("a", {"other": 1}).document_ref
    assert root(Text("a", {"source": "s"})) != root(Text("b", {"source": "s"}))
    assert root(Text("a", {"source": "s"})).startswith("document:s@")
    assert root(Text("a", {"source": "s"})) == root(Text("a", {"source": "s"}), Step("2"))
    assert root(Text("a")) == root(Text("a", {"other": 1})) != root(Text("a"), Step("2"))


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("https://host/a?id=7&token=S&page=1", "https://host/a?id=7&token=[redacted:%20url_signature]&page=1"),
        ("https://user:S@host/a", "https://host/a"),
        ("https://S@host/a", "https://host/a"),
        ("https://host/~user@home?id=7", "https://host/~user@home?id=7"),
        ("notes/S.md", "notes/S.md"),
    ],
)
def test_document_names_hold_no_credentials(source: str, name: str) -> None:
    text = Text("a", {"source": source})
    assert text.document_ref == f"document:{name}"
    assert root(text).startswith(f"document:{name}@")
    assert Text("a", {"source": source + "#b"}).document_ref != text.document_ref


def test_names_of_chunks() -> None:
    same = {Text("a", {"source": "s", "start_index": 0, "tenant": n}).chunk for n in range(3)}
    other = {Text("a", {"source": "s", "start_index": 9}).chunk, Text("a", {"source": "t"}).chunk, Text("a").chunk}
    assert len(same) == 1
    assert len(same | other) == 4
    assert Text("a", id="7").chunk == "chunk:7"


def test_texts_of_the_arguments_of_a_call() -> None:
    def read(**arguments: Any) -> Any:
        found = texts_of(arguments)
        return found and [(text.content, dict(text.metadata)) for text in found]

    assert read(documents=[Document("a", {"k": 1})]) == [("a", {"k": 1})]
    assert read(texts=["a", "b"], metadatas=[{"k": 1}]) == [("a", {"k": 1}), ("b", {})]
    assert read(texts=("a",), metadatas=[None, {"k": 1}]) == [("a", {})]
    assert read(text="a") == [("a", {})]
    assert read(documents=iter([Document("a")])) is None
    assert text_of(3) is None


def unsure(known: Known) -> Known:
    return replace(known, sure=False)


def test_a_document_is_recognised_by_object_identity() -> None:
    known, step, (one, twin) = KnownTexts(), Step("1"), (Document("a"), Document("a"))
    first, second = step.wrote(known, one, "chunk:1"), step.wrote(known, twin, "chunk:2")
    assert [known.find_object(text_of(document) or Text("")) for document in (one, twin)] == [first, second]
    copies = [step.finds(known, Text("a"), nth=nth) for nth in range(3)]
    assert copies == [unsure(first), unsure(second), unsure(second)]


def test_an_object_at_a_reused_address_has_a_new_name() -> None:
    known, place = KnownTexts(), Document("a")
    Step("1").wrote(known, place, "chunk:1")
    number = id(place)
    del place
    gc.collect()
    others = [Document(str(n)) for n in range(1000)]
    reused = [document for document in others if id(document) == number]
    assert all(known.find_object(text_of(document) or Text("")) is None for document in reused or others)


def test_a_text_is_found_by_source_then_by_content_and_in_its_store() -> None:
    known, step = KnownTexts(), Step("1")
    here = step.wrote(known, Document("a", {"source": "s"}), "chunk:1", scope="here")
    there = step.wrote(known, Document("a", {"source": "t"}), "chunk:2", scope="there")
    assert step.finds(known, Text("a", {"source": "s"})) == here
    assert step.finds(known, Text("a")) == unsure(here)
    assert known.find_in_store(Text("a"), "there") == there
    assert step.finds(known, Text("b")) is known.find_in_store(Text("b"), "there") is None


def test_a_text_is_found_in_its_turn_or_outside_turns_anywhere() -> None:
    known, step, other, alone = KnownTexts(), Step("1"), Step("2"), Step("3", alone=True)
    mine, others = step.wrote(known, "a", "chunk:1"), other.wrote(known, "a", "chunk:1")
    theirs, last = other.wrote(known, "b", "chunk:2"), alone.wrote(known, "c", "chunk:3")
    assert [one.finds(known, Text("a")) for one in (step, other, alone)] == [mine, others, unsure(others)]
    assert [step.finds(known, Text(text)) for text in "bc"] == [None, None]
    assert [step.finds(known, Text(text), anywhere=True) for text in "abc"] == [mine, unsure(theirs), unsure(last)]


def test_a_document_without_a_loader_is_named_by_its_source() -> None:
    known, step, text = KnownTexts(), Step("1"), Text("a", {"source": "s"})
    known.learn(cast(Operation, step), text, Known(root(text), ""))
    other = Text("a", {"source": "t"})
    assert step.finds(known, other) == Known(root(other), "")
    loaded = step.wrote(known, "a", "document:s")
    assert step.finds(known, text) == Known(root(text), "")
    assert step.finds(known, other) == loaded


def test_an_update_replaces_the_version_of_a_record() -> None:
    known, step = KnownTexts(), Step("1")
    step.wrote(known, "a", "chunk:1")
    newest = step.wrote(known, "a", "chunk:1")
    assert step.finds(known, Text("a")) == newest


def test_the_tables_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "_ENTRIES", 10)
    known, step, kept = KnownTexts(), Step("1"), [Document(str(number)) for number in range(100)]
    for document in kept:
        step.wrote(known, document, f"chunk:{document.page_content}")
    first, last = (text_of(kept[number]) or Text("") for number in (0, 99))
    assert known.find_object(first) is step.finds(known, first) is None
    assert known.find_object(last) == step.finds(known, last) is not None
    assert (len(known._objects), len(known._contents)) == (10, 20)


def test_names_of_stores() -> None:
    class Chroma:
        _collection_name = "notes"

    class Plain:
        index_name = 3

    assert [store_name(Chroma()), store_name(Plain())] == ["notes", "Plain"]
