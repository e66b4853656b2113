"""Compactions: the provider replaces messages of the history by one item that only the model reads."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from memtrace_otel.instrumentation.chat_history import conversations
from memtrace_otel.model import OperationSpan
from tests.conftest import Recording
from tests.integration.openai.conftest import ModelServer, response
from tests.integration.openai.test_long_context import answers, operations

COMPACTION: dict[str, Any] = {"type": "compaction", "id": "cmp-1", "encrypted_content": "gAAAA"}


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


def summary_of(recording: Recording) -> OperationSpan:
    [summary] = operations(recording, "summarize")
    assert summary.kind == "consolidate"
    assert operations(recording, "trim") == []
    return summary


def read_by_the_last(recording: Recording) -> list[str]:
    return [v.origin for v in answers(recording)[-1].inputs if v.role == "history"]


def test_a_compaction_replaces_the_messages_before_the_compaction(
    client: openai.OpenAI, server: ModelServer, recording: Recording
) -> None:
    server.replies = [response(TALK[1]), response(COMPACTION, LAST), "In Lisbon."]
    client.responses.create(model="m1", input=TALK[:1])  # type: ignore[arg-type]
    client.responses.create(model="m1", input=TALK)  # type: ignore[arg-type]
    client.responses.create(model="m1", input=[COMPACTION, LAST, user("Where do I live?")])  # type: ignore[list-item]
    summary = summary_of(recording)
    assert [v.action for v in summary.outputs] == ["UPDATE"] * 4
    assert summary.origin in read_by_the_last(recording)
