"""Which variable a document is, without LangChain itself."""

from __future__ import annotations

import gc
from dataclasses import dataclass, field
from typing import Any

import pytest

from memtrace_otel.instrumentation.langchain import documents
from memtrace_otel.instrumentation.langchain.documents import Known, KnownTexts, Text, store_name, text_of, texts_of


@dataclass(eq=False)
class Document:
    page_content: str
    metadata: dict[str, Any] = field(default_factory=dict)
    id: str | None = None


def test_names_of_documents() -> None:
    assert Text("a", {"source": "s"}).document_ref == "document:s"
    assert Text("a", {"source": "s", "page": 3}).document_ref == "document:s#page=3"
    assert Text("a", {"source": "s"}, "7").document_ref == "document:7"
    assert Text("a").document_ref == Text("a", {"other": 1}).document_ref
    assert Text("a", {"source": "s"}).root != Text("b", {"source": "s"}).root
    assert Text("a", {"source": "s"}).root.startswith("document:s@")


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


def test_a_document_is_known_as_the_object_that_it_is() -> None:
    known, (one, twin) = KnownTexts(), (Document("a"), Document("a"))
    known.learn(text_of(one) or Text(""), Known("chunk:1", "o1"))
    known.learn(text_of(twin) or Text(""), Known("chunk:2", "o2"))
    assert [known.find(text_of(document) or Text("")) for document in (one, twin)] == [
        Known("chunk:1", "o1"),
        Known("chunk:2", "o2"),
    ]
    copies = [known.find(Text("a"), turn=turn) for turn in range(3)]
    assert copies == [Known("chunk:1", "o1", sure=False), *[Known("chunk:2", "o2", sure=False)] * 2]


def test_an_object_in_the_place_of_a_dead_one_is_another() -> None:
    known, place = KnownTexts(), Document("a")
    known.learn(text_of(place) or Text(""), Known("chunk:1", "o1"))
    number = id(place)
    del place
    gc.collect()
    others = [Document(str(n)) for n in range(1000)]
    reused = [document for document in others if id(document) == number]
    assert all(known.find(text_of(document) or Text("")) is None for document in reused or others)


def test_a_text_is_found_with_its_place_then_alone_and_in_its_store() -> None:
    known = KnownTexts()
    known.learn(Text("a", {"source": "s"}), Known("chunk:1", "o1", "here"))
    known.learn(Text("a", {"source": "t"}), Known("chunk:2", "o2", "there"))
    assert known.find(Text("a", {"source": "s"})) == Known("chunk:1", "o1", "here")
    assert known.find(Text("a"), scope="there") == Known("chunk:2", "o2", "there")
    found = known.find(Text("a"))
    assert found is not None
    assert not found.sure
    assert known.find(Text("b")) is None


def test_a_new_version_takes_the_place_of_the_old_one() -> None:
    known = KnownTexts()
    for origin in ("o1", "o2"):
        known.learn(Text("a"), Known("chunk:1", origin))
    assert known.find(Text("a")) == Known("chunk:1", "o2")


def test_the_tables_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(documents, "_ENTRIES", 10)
    known, kept = KnownTexts(), [Document(str(number)) for number in range(100)]
    for document in kept:
        known.learn(text_of(document) or Text(""), Known(f"chunk:{document.page_content}", ""))
    assert known.find(text_of(kept[0]) or Text("")) is None
    assert known.find(text_of(kept[99]) or Text("")) is not None
    assert len(known._objects) == len(known._contents) == 10


def test_names_of_stores() -> None:
    class Chroma:
        _collection_name = "notes"

    class Plain:
        index_name = 3

    assert [store_name(Chroma()), store_name(Plain())] == ["notes", "Plain"]
