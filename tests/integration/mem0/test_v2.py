"""The pipeline of Mem0 2.x: one extraction with the neighbours, records written in one batch."""

from __future__ import annotations

import threading
from typing import Any

import mem0.memory.main as main
import pytest
from opentelemetry import trace
from opentelemetry.trace import StatusCode

from memtrace_otel import semconv
from memtrace_otel.model import content_digest
from tests.conftest import Recording
from tests.integration.mem0.conftest import IS_FIRST_V2, Program, ids, seen, tree
from tests.integration.model_stub import ModelStub

pytestmark = pytest.mark.usefixtures("instrumented")


@pytest.mark.usefixtures("content_on")
async def test_from_message_to_hit_every_step_names_its_producer(
    program: Program, recording: Recording, model: ModelStub
) -> None:
    first = ids(await program.call("add", "I live in Paris.", user_id="ann"))
    model.script.append(
        {"memory": [{"text": "Ann moved to Lyon", "linked_memory_ids": ["0"]}, {"text": "Ann plays chess"}]}
    )
    recording.clear()
    messages = [
        {"role": "user", "content": "I moved to Lyon. I play chess."},
        {"role": "assistant", "content": "Nice."},
    ]
    added = ids(await program.call("add", messages, user_id="ann", metadata={"timestamp": "2026-03-01T10:00:00Z"}))
    assert tree(recording) == [
        "upsert_memory",
        "  memtrace.index",
        "  memtrace.retrieve",
        "  memtrace.extract",
        "    memtrace.other",
        "  memtrace.index",
        "  create_memory",
        "  create_memory",
    ]
    upsert, _, neighbours, extract, asking, index, *creates = seen(recording)
    given = [f"message:{content_digest(message['content'])}.{upsert.origin[33:]}" for message in messages]
    assert [item["ref"] for item in upsert.inputs("message")] == given
    assert [item["content"] for item in upsert.inputs()] == [message["content"] for message in messages]
    assert upsert.outputs() == []  # the records belong to their own spans

    old = f"memory:{first['I live in Paris.']}"
    assert [
        item["ref"] for item in neighbours.inputs("query")
    ] == given  # no query: a memory never descends from a query
    assert [item["ref"] for item in neighbours.inputs("hit")] == [old]
    assert neighbours.inputs("hit")[0]["score"] > 0

    assert [item["ref"] for item in extract.inputs("message")] == given
    assert [item["content"] for item in extract.inputs("history")] == ["I live in Paris."]
    (candidate,) = extract.inputs("candidate")
    assert (candidate["ref"], bool(candidate["origin"])) == (old, True)
    assert extract.inputs("prompt")[0]["ref"] == "prompt:mem0.fact_extraction"
    moved, chess = extract.outputs()
    (completion,) = asking.outputs()
    assert completion["content"].startswith('{"memory"')
    assert [moved["content"], chess["content"]] == ["Ann moved to Lyon", "Ann plays chess"]
    assert [fact["action"] for fact in (moved, chess)] == ["DERIVE", "DERIVE"]
    roles = [[extract.inputs()[i]["role"] for i in fact["sources"]] for fact in (moved, chess)]
    assert roles == [
        ["prompt", "message", "message", "history", "candidate", "other"],
        ["prompt", "message", "message", "history", "other"],
    ]
    assert moved["event_time"] == "2026-03-01T10:00:00+00:00"
    assert extract.attributes[semconv.GEN_AI_REQUEST_MODEL] == "stub"

    assert [(item["ref"], item["origin"]) for item in index.inputs()] == [
        (f["ref"], extract.origin) for f in (moved, chess)
    ]
    for create, fact in zip(creates, (moved, chess), strict=True):
        (source,) = create.inputs()
        assert (source["ref"], source["origin"]) == (fact["ref"], extract.origin)
        (record,) = create.outputs()
        assert (record["ref"], record["action"]) == (f"memory:{added[fact['content']]}", "ADD")
        assert record["content"] == fact["content"]
        assert record["event_time"] == "2026-03-01T10:00:00+00:00"
        assert create.attributes[semconv.GEN_AI_MEMORY_RECORD_ID] == added[fact["content"]]

    await program.search("chess")
    (search,) = seen(recording, "search_memory")
    assert search.inputs("hit")[0]["origin"] == creates[1].origin
    assert search.attributes[semconv.RETRIEVAL_SCORERS] == ("semantic",)


async def test_a_dropped_duplicate_is_recorded(program: Program, recording: Recording) -> None:
    added = ids(await program.call("add", "I live in Paris.", user_id="ann"))
    assert (await program.call("add", "I live in Paris. I play chess.", user_id="ann"))["results"][0][
        "memory"
    ] == "I play chess."
    upsert = seen(recording, "upsert_memory")[-1]
    assert [(item["ref"], item["action"]) for item in upsert.outputs()] == [
        (f"memory:{added['I live in Paris.']}", "NONE")
    ]
    await program.search("Paris")
    (created, _) = seen(recording, "create_memory")
    assert seen(recording, "search_memory")[0].inputs("hit")[0]["origin"] == created.origin


async def test_a_reply_that_is_no_json_yields_no_fact(program: Program, recording: Recording, model: ModelStub) -> None:
    model.script.append("I would rather not")
    assert (await program.call("add", "I live in Paris.", user_id="ann"))["results"] == []
    (extract,) = seen(recording, "memtrace.extract")
    assert extract.outputs() == []
    assert [item["ref"].split(":")[0] for item in extract.inputs("other")] == ["completion"]
    assert "unparsed" in extract.attributes[semconv.INCOMPLETE]


async def test_a_failed_batch_and_its_retries_are_recorded(
    program: Program, recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = type(program.memory.vector_store)
    insert = store.insert

    def one_at_a_time(self: Any, vectors: Any, payloads: Any = None, ids: Any = None) -> Any:
        if len(vectors) > 1:
            raise OSError("too many at once")
        return insert(self, vectors, payloads, ids)

    monkeypatch.setattr(store, "insert", one_at_a_time)
    added = ids(await program.call("add", "I live in Paris. I play chess.", user_id="ann"))
    creates = seen(recording, "create_memory")
    failed = [create for create in creates if create.span.status.status_code is StatusCode.ERROR]
    assert [create.outputs() for create in failed] == [[], []]
    made = [create.outputs()[0]["ref"] for create in creates if create not in failed]
    assert made == [f"memory:{added[text]}" for text in ("I live in Paris.", "I play chess.")]


async def test_the_entity_pool_keeps_the_context(
    program: Program, recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Mem0 searches its entity collection in its own thread pool. Spans of a client library there have our parent.

    `Memory` of 2.0.0 has no pool yet.
    """
    monkeypatch.setattr(main, "extract_entities", lambda text: [("PROPER", "Rex")])
    store = type(program.memory.vector_store)
    search, places = store.search, []

    def spying(self: Any, *args: Any, **kwargs: Any) -> Any:
        span = trace.get_current_span().get_span_context()
        places.append((self.collection_name, threading.current_thread(), f"{span.trace_id:032x}"))
        return search(self, *args, **kwargs)

    monkeypatch.setattr(store, "search", spying)
    await program.search("Where is Rex?")
    (root,) = seen(recording, "search_memory")
    assert {place[2] for place in places} == {root.trace_id}
    entities = [place for place in places if place[0] == "memories_entities"]
    pooled = [thread for _, thread, _ in entities if thread is not threading.main_thread()]
    assert entities
    assert pooled or (IS_FIRST_V2 and isinstance(program.memory, main.Memory))
