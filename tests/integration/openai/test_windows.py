"""Sliding windows under changing prompts: dropped messages are trimmed."""

from __future__ import annotations

import openai
import pytest

from tests.conftest import Recording
from tests.integration.openai.conftest import ModelServer
from tests.integration.openai.test_long_context import (
    SYSTEM,
    Chat,
    answers,
    chat,
    graph_of,
    no_conversations,
    operations,
)

__all__ = ["chat", "no_conversations"]

FACTS = ["My cat is called Tom.", "I live in Oslo.", "I work as a baker.", "I like tea."]


def trimmed(recording: Recording) -> list[str]:
    graph = graph_of(recording)
    inputs = [read for op in operations(recording, "trim") for read in graph.inputs(op.origin)]
    return [text for read in inputs if (text := graph.content(read.version)) in FACTS]


def window(chat: Chat, number: int, *before: dict[str, str]) -> None:
    """Two exchanges and the question, after messages that change with every turn."""
    chat.history = [*before, *[message for message in chat.history if "fixed" not in message][-4:]]
    chat.say(FACTS[number], f"I will keep in mind that {FACTS[number]}")
    chat.history = chat.history[len(before) :]


@pytest.mark.usefixtures("content_on")
def test_a_changing_system_prompt_is_no_summary(chat: Chat, recording: Recording) -> None:
    chat.history = []
    for number in range(4):
        window(chat, number, {"role": "system", "content": f"Be kind. It is 10:0{number}."})
    assert not operations(recording, "summarize")
    assert trimmed(recording) == FACTS[:1]
    [*_, last] = answers(recording)
    graph = graph_of(recording)
    contents = {graph.content(node) for node in graph.slice_of_answer(last.origin) if hasattr(node, "ref")}
    assert FACTS[0] not in contents


@pytest.mark.usefixtures("content_on")
def test_notes_before_the_history_are_no_summary(chat: Chat, recording: Recording) -> None:
    chat.history = []
    for number in range(4):
        window(chat, number, {"role": "user", "content": f"Notes for this question: number {number}."})
    assert not operations(recording, "summarize")
    assert trimmed(recording) == FACTS[:1]


def test_a_reply_is_recognised_without_surrounding_white_space(chat: Chat, recording: Recording) -> None:
    for fact in FACTS:
        chat.say(fact, f"I will keep in mind that {fact}\n")
        chat.history[-1]["content"] = chat.history[-1]["content"].strip()
    assert [len([v for v in op.inputs if v.role == "history"]) for op in answers(recording)] == [0, 2, 4, 6]
    assert len(operations(recording, "memory_update")) == 3


def test_a_long_reply_identifies_a_conversation_with_a_rewritten_question(chat: Chat, recording: Recording) -> None:
    reply = "The garage code is on the note beside the door, under the picture of the boat."
    chat.say("Notes: many.\nWhat is the garage code?", reply)
    chat.history = [{"role": "user", "content": "What is the garage code?"}, {"role": "assistant", "content": reply}]
    chat.say("And the plumber?", "Mr Vik.")
    [_, last] = answers(recording)
    assert "inferred" in last.incomplete
    assert operations(recording, "memory_update")


def test_few_shot_examples_are_no_conversation(chat: Chat, recording: Recording) -> None:
    examples = [SYSTEM]
    for text, reply in (("I love it.", "positive"), ("I hate it.", "negative")):
        examples += [{"role": "user", "content": text}, {"role": "assistant", "content": reply}]
    for text, reply in (("Great!", "positive"), ("Bad.", "negative"), ("Super.", "positive"), ("Meh.", "negative")):
        chat.history = list(examples)
        chat.say(text, reply)
    assert {v.origin for answer in answers(recording) for v in answer.inputs} == {""}
    assert {reason for answer in answers(recording) for reason in answer.incomplete} == {"content_off"}
    assert not operations(recording, "memory_update") + operations(recording, "trim")
    chat.say("And that?", "negative")
    assert len([v for v in answers(recording)[-1].inputs if v.role == "history"]) == 6


def test_retries_of_the_package_are_one_call(server: ModelServer, recording: Recording) -> None:
    server.replies = [500, 429, "A fine city."]
    client = openai.OpenAI(base_url=server.url, api_key="none", max_retries=2)
    client.chat.completions.create(model="m1", messages=[{"role": "user", "content": FACTS[1]}])
    assert len(recording.spans()) == 1
