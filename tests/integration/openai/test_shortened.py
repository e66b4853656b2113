"""Histories of which a prompt keeps one short reply, or only a summary."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import openai
import pytest

from tests.conftest import Recording
from tests.integration.openai.conftest import ModelServer
from tests.integration.openai.test_long_context import (
    Chat,
    actions,
    answers,
    chat,
    graph_of,
    no_conversations,
    operations,
)

__all__ = ["chat", "no_conversations"]

pytestmark = pytest.mark.usefixtures("content_on")

TURNS = [("Hi, I am Ann.", "Hello Ann!"), ("I live in Oslo.", "A fine city."), ("I bake.", "Early mornings, then.")]
SUMMARY = "Ann, who lives in Oslo, is a baker; she was welcomed warmly by the assistant."
LAST = ("Where do I live?", "In Oslo.")


def anywhere(run: Callable[..., Any], *args: Any, **options: Any) -> Any:
    """In its own context, as in a web server."""
    return contextvars.Context().run(run, *args, **options)


def last_two(chat: Chat, *turn: str, **options: Any) -> None:
    """A turn whose prompt is the last reply and the question."""
    chat.history = chat.history[-1:] if len(chat.history) > 1 else []
    chat.say(*turn, **options)


def incomplete(recording: Recording) -> list[list[str]]:
    return [sorted(answer.incomplete) for answer in answers(recording)]


# --- a window of one short reply ------------------------------------------------------------------------------------
def test_a_window_of_one_short_reply_has_unknown_origin(chat: Chat, recording: Recording) -> None:
    for turn in TURNS:
        anywhere(last_two, chat, *turn)
    assert incomplete(recording) == [[], ["unknown_origin"], ["unknown_origin"]]
    assert {v.origin for answer in answers(recording) for v in answer.inputs} == {""}
    assert actions(recording) == []


def test_a_short_reply_to_another_question_has_unknown_origin(
    client: openai.OpenAI, server: ModelServer, recording: Recording
) -> None:
    Chat(client, server, recording).say("I am Ann, remember my PIN 4711.", "OK")
    bob = Chat(client, server, recording)
    bob.history += [{"role": "user", "content": "I am Bob."}, {"role": "assistant", "content": "OK"}]
    bob.say("Who am I?", "Bob.")
    assert incomplete(recording) == [[], ["unknown_origin"]]
    assert actions(recording) == []


# --- a summary, and the last messages -------------------------------------------------------------------------------
def summarised(chat: Chat, keep: int, role: str, *, span: bool = True) -> None:
    """A model summarises all but the last messages; then the user asks."""
    old, kept = chat.history[1 : len(chat.history) - keep], chat.history[len(chat.history) - keep :]
    said = "\n".join(f"{message['role']}: {message['content']}" for message in old)
    asked: list[Any] = [
        {"role": "system", "content": "Summarise the conversation."},
        {"role": "user", "content": said},
    ]
    with chat.recording.tracer.start_as_current_span("turn") if span else nullcontext():
        chat.server.replies = [SUMMARY]
        made = chat.client.chat.completions.create(model="m2", messages=asked).choices[0].message.content
        chat.history = [chat.history[0], {"role": role, "content": f"What was said so far: {made}"}, *kept]
        chat.say(*LAST)


def is_summarised(recording: Recording, entries: int) -> bool:
    """Whether so many messages go on as the summary, which comes from the call that made it, and the question is asked
    of it."""
    [summary] = operations(recording, "summarize")
    last, graph = answers(recording)[-1], graph_of(recording)
    [made] = [span for span in answers(recording) if SUMMARY in {v.content for v in span.outputs}]
    assert [v.action for v in summary.outputs] == ["UPDATE"] * entries
    assert {v.origin for v in summary.inputs if v.role == "answer"} == {made.origin}
    assert "inferred" in last.incomplete
    assert not operations(recording, "trim")
    slice = {graph.content(node) for node in graph.slice_of_answer(last.origin) if hasattr(node, "ref")}
    assert {text for turn in TURNS for text in turn} <= slice
    return True


@pytest.mark.parametrize("role", ["system", "user"])
@pytest.mark.parametrize("where", ["a span", "one context", "contexts of their own"])
def test_a_summary_and_a_short_reply_replace_all_summarised_messages(
    chat: Chat, recording: Recording, role: str, where: str
) -> None:
    run = anywhere if where == "contexts of their own" else lambda run, *args, **options: run(*args, **options)
    for turn in TURNS:
        run(chat.say, *turn)
    run(summarised, chat, 1, role, span=where == "a span")
    assert is_summarised(recording, 5)


def test_a_summary_and_a_short_reply_of_equal_conversations_have_unknown_origin(
    client: openai.OpenAI, server: ModelServer, recording: Recording
) -> None:
    people = [Chat(client, server, recording) for _ in "ab"]
    for person in people:
        person.say(*TURNS[0])
    for person in people:
        anywhere(summarised, person, 1, "system")
    assert "unknown_origin" in answers(recording)[-1].incomplete
    assert actions(recording) == []


# --- nothing but a summary ------------------------------------------------------------------------------------------
@pytest.mark.parametrize("role", ["system", "user", "assistant"])
@pytest.mark.parametrize("where", ["a span", "one context", "contexts of their own"])
def test_a_summary_alone_replaces_all_summarised_messages(
    chat: Chat, recording: Recording, role: str, where: str
) -> None:
    run = anywhere if where == "contexts of their own" else lambda run, *args, **options: run(*args, **options)
    for turn in TURNS:
        run(chat.say, *turn)
    run(summarised, chat, 0, role, span=where == "a span")
    assert is_summarised(recording, 6)
    run(chat.say, "And what am I?", "A baker.")
    history = [v for v in answers(recording)[-1].inputs if v.role == "history"]
    assert len(history) == 3
    assert actions(recording)[-2:] == ["ADD"] * 2


def test_a_summary_of_equal_conversations_has_unknown_origin(
    client: openai.OpenAI, server: ModelServer, recording: Recording
) -> None:
    people = [Chat(client, server, recording) for _ in "ab"]
    for person in people:
        person.say(*TURNS[0])
    anywhere(summarised, people[0], 0, "system")
    assert "unknown_origin" in answers(recording)[-1].incomplete
    assert actions(recording) == []
