"""What the LlamaIndex instrumentor does without LlamaIndex: what it knows to be stored, names of stores, streams."""

from __future__ import annotations

import gc
from collections.abc import AsyncGenerator, Generator
from types import AsyncGeneratorType, GeneratorType, SimpleNamespace
from typing import Any

import pytest

from memtrace_otel.capture import current_operation, operation, scope_id
from memtrace_otel.capture.finalizers import report_waiting
from memtrace_otel.instrumentation.llamaindex import messages, state
from memtrace_otel.instrumentation.llamaindex.memory import queue_text
from memtrace_otel.instrumentation.llamaindex.nodes import Piece, message_text, pieces, query_text
from memtrace_otel.instrumentation.llamaindex.state import Ledger, LlamaIndexPatches, store_behind, store_name
from memtrace_otel.instrumentation.llamaindex.streams import observed
from memtrace_otel.instrumentation.store_location import ObjectNames
from tests.conftest import Recording

Ended = list[tuple[str, bool, BaseException | None]]


def piece(id: str, text: str = "x", document: str = "d") -> Piece:
    return Piece(f"chunk:{id}", id, text, text, document)


# --- the ledger ------------------------------------------------------------------------------------------------------
def test_a_ledger_knows_versions_by_owner() -> None:
    known = Ledger()
    known.put("one", piece("a", "old"))
    known.put("two", piece("a", "new"))
    assert known.scope_of("chunk:a") == "two"
    assert known.holds(piece("a", "new"))
    assert not known.holds(piece("a", "old"))
    assert [stored.fingerprint for stored in known.chunks_of("one", "d")] == ["old"]
    removed = known.remove("two", "chunk:a")
    assert removed is not None
    assert (removed.fingerprint, known.scope_of("chunk:a"), known.find("two", "chunk:a")) == ("new", "", None)
    assert known.remove("two", "chunk:a") is None
    assert known.all_of("two") == [] == known.chunks_of("two", "d")


def test_a_ledger_forgets_the_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "_RECORDS", 3)
    known = Ledger()
    for number in range(5):
        known.put("s", piece(str(number), document=f"d{number}"))
    assert [stored.ref for stored in known.all_of("s")] == ["chunk:2", "chunk:3", "chunk:4"]
    assert known.scope_of("chunk:0") == ""
    assert known.chunks_of("s", "d0") == []


def test_a_chunk_that_moves_leaves_the_document_it_was_cut_from() -> None:
    known = Ledger()
    for document in ("first", "second"):
        known.put("s", piece("a", document=document))
    assert known.chunks_of("s", "first") == []
    assert [stored.ref for stored in known.chunks_of("s", "second")] == ["chunk:a"]
    for number in range(100):
        known.put("s", piece("a", document=f"d{number}"))
    assert (len(known.all_of("s")), len(known._chunks)) == (1, 1)
    known.remove("s", "chunk:a")
    assert known.chunks_of("s", "d99") == []
    assert not known._chunks


# --- names -----------------------------------------------------------------------------------------------------------
def test_the_name_of_a_store_is_its_collection_or_its_class() -> None:
    class FlatFiles:
        pass

    assert store_name(SimpleNamespace(collection_name="notes")) == "notes"
    assert store_name(SimpleNamespace(collection_name=None, table_name="t")) == "t"
    assert (store_name(FlatFiles()), store_name(None)) == ("FlatFiles", "")
    files = FlatFiles()
    assert store_behind(SimpleNamespace(_retriever=SimpleNamespace(_vector_store=files))) is files
    assert store_behind(SimpleNamespace()) is None
    circle = SimpleNamespace()
    circle._retriever = circle
    assert store_behind(circle) is None


def test_a_store_without_a_name_has_a_scope_of_its_own(recording: Recording) -> None:
    class FlatFiles:
        def __eq__(self, other: object) -> bool:  # and therefore not hashable, as stores of LlamaIndex are
            return True

    patches = LlamaIndexPatches(recording.tracer)
    ann, bob = FlatFiles(), FlatFiles()
    assert patches.scope_of(ann) == patches.scope_of(ann) != patches.scope_of(bob)
    assert patches.scope_of(None) == ""
    named = [SimpleNamespace(collection_name="notes") for _ in range(2)]
    assert patches.scope_of(named[0]) == patches.scope_of(named[1]) == scope_id("notes")
    assert patches.scope_of(FlatFiles(), "new") == patches.scope_of_nameless("FlatFiles", "new")


def test_an_object_keeps_its_name_while_it_lives() -> None:
    class Store:
        pass

    names, store = ObjectNames(), Store()
    assert names.name(store, "one") == names.name(store, "two") == "one"
    assert names.name(7) == ""
    del store
    gc.collect()
    assert not names._names


def test_a_value_that_is_not_a_list_of_nodes_has_no_pieces() -> None:
    def consumed() -> Generator[Any]:
        raise AssertionError("an iterator of the program was consumed")
        yield

    assert list(pieces(consumed())) == list(pieces(None)) == list(pieces([None, 7, "text", object()])) == []
    assert query_text(None) == query_text(object()) == message_text(None) == message_text(object()) == ""


# --- chat memory -----------------------------------------------------------------------------------------------------
class Asked(list[SimpleNamespace]):
    """A queue that counts the messages somebody looked at."""

    looked_at = 0

    def __getitem__(self, key: Any) -> Any:
        found = super().__getitem__(key)
        self.looked_at += len(found) if isinstance(key, slice) else 1
        return found

    def __iter__(self) -> Any:
        raise AssertionError("the whole queue was read")


def test_the_text_of_a_long_queue_reads_fifty_messages() -> None:
    queue = Asked(SimpleNamespace(content=f"message {number}") for number in range(1000))
    first, *shown = queue_text(queue).split("\n")
    assert (first, shown[0], shown[-1]) == ("(950 older messages)", "message 950", "message 999")
    assert queue.looked_at == len(shown) == 50
    assert queue_text(queue[-50:]) == "\n".join(shown)
    assert queue_text(()) == ""


def test_known_messages_are_matched_from_the_newest_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "_CONVERSATIONS", 2)
    said = [SimpleNamespace(content=text) for text in ("Hi.", "ok", "ok")]
    known = messages.Messages()
    _, first, second = known.append("s", said)
    assert known.recognise("s", said[1:]) == [first, second]
    assert known.recognise("s", said[2:]) == [second]
    foreign = [message.ref for message in known.recognise("s", [SimpleNamespace(content="Tea?")] * 2)]
    assert foreign == [messages.message_ref("Tea?"), f"{messages.message_ref('Tea?')}.2"]
    for name in ("t", "u"):
        known.append(name, said)
    assert known.recognise("s", said[2:]) != [second]


# --- streams ---------------------------------------------------------------------------------------------------------
def words() -> Generator[str]:
    for word in ("She ", "lives ", "here."):
        assert current_operation() is not None, "the model is called outside of the answer"
        yield word


async def words_async() -> AsyncGenerator[str]:
    for word in words():
        yield word


def watch(recording: Recording, stream: Any, ended: Ended) -> Any:
    running = operation("chat", kind="respond", system="t", tracer=recording.tracer)
    running.start()
    running.leave()
    return observed(stream, running, str, lambda *end: ended.append(end))


def test_a_stream_passes_through_inside_its_operation(recording: Recording) -> None:
    ended: Ended = []
    stream = watch(recording, words(), ended)
    assert type(stream) is GeneratorType
    for _ in stream:
        assert current_operation() is None
    assert ended == [("She lives here.", True, None)]


async def test_an_asynchronous_stream_passes_through(recording: Recording) -> None:
    ended: Ended = []
    stream = watch(recording, words_async(), ended)
    assert type(stream) is AsyncGeneratorType
    assert "".join([word async for word in stream]) == "She lives here."
    assert ended == [("She lives here.", True, None)]
    assert current_operation() is None


@pytest.mark.parametrize("taken", [0, 1])
def test_a_dropped_stream_is_reported_later(taken: int, recording: Recording) -> None:
    ended: Ended = []
    stream = watch(recording, words(), ended)
    for _ in range(taken):
        next(stream)
    del stream
    gc.collect()
    assert ended == []
    report_waiting()
    assert ended == [("She " * taken, False, None)]


def test_closing_a_stream_closes_the_stream_of_the_program(recording: Recording) -> None:
    closed: list[bool] = []

    def closing() -> Generator[str]:
        try:
            yield "a"
        finally:
            closed.append(True)

    stream = watch(recording, closing(), [])
    next(stream)
    stream.close()
    assert closed == [True]


def test_an_error_of_the_stream_is_raised_and_reported(recording: Recording) -> None:
    def failing() -> Generator[str]:
        yield "a"
        raise ValueError("broken")

    ended: Ended = []
    stream = watch(recording, failing(), ended)
    with pytest.raises(ValueError, match="broken") as raised:
        list(stream)
    assert ended == [("a", False, raised.value)]
    assert current_operation() is None


def test_a_value_that_is_not_a_generator_is_not_wrapped(recording: Recording) -> None:
    assert watch(recording, iter(["a"]), []) is None
    assert watch(recording, None, []) is None
