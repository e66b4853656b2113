"""Mem0's values as variables: messages, owners, records, times. No Mem0 needed."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from types import SimpleNamespace
from typing import Any

import pytest

from memtrace_otel.capture import scope_id
from memtrace_otel.instrumentation.mem0.variables import (
    event_time,
    owner_scope,
    place_of,
    record_of,
    results,
    turns,
)
from memtrace_otel.model import content_digest

MEMORY: Any = SimpleNamespace(collection_name="memories")


def test_a_text_a_message_and_a_list_give_the_same_turn() -> None:
    message = {"role": "user", "content": "Hello"}
    (ref,) = {turn.ref for given in ("Hello", message, [message]) for turn in turns(given, "s1")}
    assert ref == f"message:{content_digest('Hello')}.s1"


def test_the_callers_id_names_a_message() -> None:
    (turn,) = turns(
        [{"id": "chat 7,3", "role": "user", "content": "Hello", "timestamp": "2026-03-01T10:00:00+01:00"}], "s1"
    )
    assert turn.ref == "message:chat%207%2C3"
    assert turn.time == "2026-03-01T10:00:00+01:00"


def test_a_multimodal_message_is_its_text_and_never_its_bytes() -> None:
    photo = {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}}
    parts = [{"type": "text", "text": "Look"}, photo, {"type": "text", "text": "here"}]
    assert [turn.content for turn in turns([{"role": "user", "content": parts}], "s1")] == ["Look here"]


@pytest.mark.parametrize("given", [None, 7, [None, 7], [{"role": "assistant", "tool_calls": []}], {}])
def test_what_is_no_message_is_no_turn(given: object) -> None:
    assert list(turns(given, "s1")) == []


def test_equal_texts_are_one_message_in_every_step_of_a_call_and_two_otherwise() -> None:
    yes = content_digest("Yes.")
    given = ["Yes.", {"content": "No."}, {"content": "Yes."}, {"content": "Yes.", "id": "m1"}]
    first, _, second, named = [turn.ref for turn in turns(given, "s1")]
    assert (first, second, named) == (f"message:{yes}.s1", f"message:{yes}.s1.2", "message:m1")
    assert [turn.ref for turn in turns("Yes.", "s1")] == [first]
    assert [turn.ref for turn in turns("Yes.", "s2")] == [f"message:{yes}.s2"]


def test_the_owner_is_the_user_before_the_agent_before_the_run() -> None:
    user = scope_id("memories", user="ann")
    assert owner_scope(MEMORY, {"user_id": "ann"}) == user
    assert owner_scope(MEMORY, {"user_id": " ann ", "agent_id": "bot", "run_id": "r1"}) == user
    assert owner_scope(MEMORY, {"user_id": None, "agent_id": "bot"}) == scope_id("memories", agent="bot")
    assert owner_scope(MEMORY, {"run_id": "r1", "colour": "red"}) == scope_id("memories", run="r1")
    assert owner_scope(MEMORY, {"user_id": "bob"}) != user
    assert owner_scope(MEMORY, {"agent_id": "ann"}) != user
    assert owner_scope(SimpleNamespace(collection_name="other"), {"user_id": "ann"}) != user
    assert owner_scope(MEMORY, {"colour": "red"}) == ""


def test_a_row_of_a_store_and_an_item_of_a_result_are_the_same_record() -> None:
    row = SimpleNamespace(id=7, payload={"data": "likes tea", "user_id": "ann"}, score=0.5)
    item = {"id": "7", "memory": "likes tea", "user_id": "ann", "score": 0.5}
    as_dict = {"id": "7", "payload": row.payload, "score": 0.5}  # some stores return plain dicts
    assert record_of(MEMORY, row) == record_of(MEMORY, item) == record_of(MEMORY, as_dict)
    assert record_of(MEMORY, row).ref == "memory:7"
    assert record_of(MEMORY, SimpleNamespace(id=7, payload=None)).text == ""
    assert record_of(MEMORY, item | {"rerank_score": 0.9}).score == 0.9


@pytest.mark.parametrize(
    ("values", "time"),
    [
        ({"timestamp": 1_772_359_200}, "2026-03-01T10:00:00+00:00"),
        ({"timestamp": "2026-03-01T10:00:00Z"}, "2026-03-01T10:00:00+00:00"),
        ({"date": "2026-03-01"}, "2026-03-01T00:00:00+00:00"),
        ({"created_at": datetime(2026, 3, 1, 10, tzinfo=timezone(timedelta(hours=1)))}, "2026-03-01T10:00:00+01:00"),
        ({"time": datetime(2026, 3, 1, 10)}, datetime(2026, 3, 1, 10, tzinfo=UTC).isoformat()),
        ({"timestamp": "1:56 pm on 8 May, 2023"}, ""),
        ({"timestamp": 1e300}, ""),
        ({"timestamp": True}, ""),
        ({}, ""),
        (None, ""),
    ],
)
def test_event_times(values: dict[str, Any] | None, time: str) -> None:
    assert event_time(values) == time


@pytest.mark.parametrize("returned", [None, "text", {"results": None}, {"results": [1]}, [None], {"message": "done"}])
def test_results_of_an_unexpected_shape_are_none(returned: object) -> None:
    assert results(returned) == []


def test_memories_share_a_place_when_their_stores_are_configured_alike() -> None:
    def place(**settings: object) -> int:
        store = SimpleNamespace(config=SimpleNamespace(collection_name="memories", **settings))
        return place_of(SimpleNamespace(config=SimpleNamespace(vector_store=store)))

    client, another = [], []  # type: ignore[var-annotated]
    assert place(path="/a") == place(path="/a") != place(path="/b")
    assert place(host="a", port=6333) != place(host="a", port=6334)
    assert place(client=client) == place(client=client) != place(client=another)
    assert place_of(MEMORY) == place_of(SimpleNamespace(config=None))  # nothing is told of them
