"""A history that the model's side summarises: the compaction goes on for what it stands for."""

from __future__ import annotations

from typing import Any

import openai
import pytest
from openai.resources.responses import Responses

from memtrace_otel.instrumentation.chat_history import conversations
from memtrace_otel.model import OperationSpan
from tests.conftest import Recording
from tests.integration.openai.conftest import ModelServer, response
from tests.integration.openai.test_long_context import answers, operations

COMPACTION: dict[str, Any] = {"type": "compaction", "id": "cmp-1", "encrypted_content": "gAAAA"}
compacts = pytest.mark.skipif(not hasattr(Responses, "compact"), reason="the package has no compaction yet")


@pytest.fixture(autouse=True)
def no_conversations() -> None:
    conversations.forget()


def user(text: str) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_text", "text": text}]}


def assistant(text: str, id: str) -> dict[str, Any]:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    return {"type": "message", "id": id, "role": "assistant", "status": "completed", "content": content}


TALK = [user("I live in Lisbon."), assistant("So you live in Lisbon.", "m-1"), user("I like tea.")]
LAST = assistant("Tea is noted.", "m-2")


def talk(client: openai.OpenAI, server: ModelServer, **named: Any) -> list[Any]:
    """Two turns; returns their history."""
    server.replies = [response(TALK[1]), response(LAST)]
    client.responses.create(model="m1", input=TALK[:1], **named)  # type: ignore[arg-type]
    client.responses.create(model="m1", input=TALK, **named)  # type: ignore[arg-type]
    return [*TALK, LAST]


def summary_of(recording: Recording) -> OperationSpan:
    [summary] = operations(recording, "summarize")
    assert summary.kind == "consolidate"
    assert operations(recording, "trim") == []
    return summary


def read_by_the_last(recording: Recording) -> list[str]:
    return [v.origin for v in answers(recording)[-1].inputs if v.role == "history"]


@compacts
@pytest.mark.parametrize("named", [{}, {"metadata": {"conversation_id": "c-1"}}, {"user": "ana"}])
@pytest.mark.parametrize("kept", [[], [TALK[0], TALK[2]]])
def test_a_compaction_goes_on_for_what_it_stands_for(
    client: openai.OpenAI, server: ModelServer, recording: Recording, kept: list[Any], named: dict[str, Any]
) -> None:
    history = talk(client, server, **named)
    server.replies = [response(*kept, COMPACTION, kind="response.compaction"), "In Lisbon."]
    client.responses.compact(model="m1", input=history)
    client.responses.create(model="m1", input=[*kept, COMPACTION, user("Where do I live?")], **named)  # type: ignore[list-item]
    summary = summary_of(recording)
    assert [v.action for v in summary.outputs] == ["UPDATE"] * (4 - len(kept))
    assert [len(span.outputs) for span in operations(recording, "memory_update")] == [2, 2]
    read = read_by_the_last(recording)
    assert read[-1] == summary.origin
    assert len(read) == len(kept) + 1


@compacts
def test_a_second_compaction_goes_on_for_the_first(
    client: openai.OpenAI, server: ModelServer, recording: Recording
) -> None:
    history = talk(client, server)
    second = COMPACTION | {"id": "cmp-2"}
    server.replies = [
        response(COMPACTION, kind="response.compaction"),
        response(assistant("In Lisbon.", "m-3")),
        response(second, kind="response.compaction"),
        "Tea.",
    ]
    client.responses.compact(model="m1", input=history)
    asked: list[Any] = [COMPACTION, user("Where do I live?")]
    client.responses.create(model="m1", input=asked)
    client.responses.compact(model="m1", input=[*asked, assistant("In Lisbon.", "m-3")])  # type: ignore[list-item]
    client.responses.create(model="m1", input=[second, user("What do I like?")])  # type: ignore[list-item]
    first, again = operations(recording, "summarize")
    assert next(v.origin for v in again.inputs) == first.origin
    assert read_by_the_last(recording) == [again.origin]


@compacts
def test_a_history_from_elsewhere_is_stored_and_compacted(
    client: openai.OpenAI, server: ModelServer, recording: Recording
) -> None:
    server.replies = [response(COMPACTION, kind="response.compaction"), "In Lisbon."]
    client.responses.compact(model="m1", input=[*TALK, LAST])  # type: ignore[list-item]
    client.responses.create(model="m1", input=[COMPACTION, user("Where do I live?")])  # type: ignore[list-item]
    assert len(summary_of(recording).outputs) == 4
    assert read_by_the_last(recording) == [summary_of(recording).origin]


@compacts
def test_a_compaction_compares_no_entry_with_all_others(
    client: openai.OpenAI, server: ModelServer, recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[object] = []

    def equal(self: object, other: object) -> bool:
        compared.append(self)
        return self is other

    monkeypatch.setattr(conversations.Entry, "__eq__", equal)
    kept = [user(f"I like number {number}.") for number in range(20)]
    said = [assistant(f"Number {number} is noted.", f"m-{number}") for number in range(20)]
    server.replies = [response(*kept, COMPACTION, kind="response.compaction")]
    client.responses.compact(model="m1", input=[*kept, *said])  # type: ignore[list-item]
    assert len(summary_of(recording).outputs) == len(said)
    assert len(compared) <= len(kept) + len(said)


@compacts
def test_a_compaction_that_fails_changes_nothing(
    client: openai.OpenAI, server: ModelServer, recording: Recording
) -> None:
    history = talk(client, server)
    server.replies = [400, "In Lisbon."]
    with pytest.raises(openai.BadRequestError):
        client.responses.compact(model="m1", input=history)
    client.responses.create(model="m1", input=[*history, user("Where do I live?")])
    assert list(summary_of(recording).outputs) == []
    assert len(read_by_the_last(recording)) == 4


def test_a_compaction_within_a_reply_goes_on_for_what_it_stands_for(
    client: openai.OpenAI, server: ModelServer, recording: Recording
) -> None:
    server.replies = [response(TALK[1]), response(COMPACTION, LAST), "In Lisbon."]
    client.responses.create(model="m1", input=TALK[:1])  # type: ignore[arg-type]
    client.responses.create(model="m1", input=TALK)  # type: ignore[arg-type]
    client.responses.create(model="m1", input=[COMPACTION, LAST, user("Where do I live?")])  # type: ignore[list-item]
    summary = summary_of(recording)
    assert [v.action for v in summary.outputs] == ["UPDATE"] * 4
    assert summary.origin in read_by_the_last(recording)


def test_what_is_trimmed_after_a_compaction_is_no_part_of_it(
    client: openai.OpenAI, server: ModelServer, recording: Recording
) -> None:
    there = assistant("In Lisbon.", "m-3")
    server.replies = [response(TALK[1]), response(COMPACTION, LAST), response(there), "Tea."]
    asked = user("Where do I live?")
    client.responses.create(model="m1", input=TALK[:1])  # type: ignore[arg-type]
    client.responses.create(model="m1", input=TALK)  # type: ignore[arg-type]
    client.responses.create(model="m1", input=[COMPACTION, LAST, asked])  # type: ignore[list-item]
    client.responses.create(model="m1", input=[COMPACTION, asked, there, user("What do I like?")])  # type: ignore[list-item]
    [summary] = operations(recording, "summarize")
    [trim] = operations(recording, "trim")
    assert len(summary.outputs) == 4
    assert [v.action for v in trim.outputs] == ["DELETE"]
    assert summary.origin in read_by_the_last(recording)
