"""Sliding windows under prompts that change all the time: what is trimmed is trimmed, whatever else is new."""

from __future__ import annotations

import os

import pytest

from memtrace_otel.instrumentation.openai import conversations
from memtrace_otel.instrumentation.openai.calls import Message, Request
from memtrace_otel.instrumentation.openai.conversations import Conversation, Entry
from tests.conftest import Recording
from tests.integration.openai.test_long_context import Chat, answers, chat, graph_of, no_conversations, operations

__all__ = ["chat", "no_conversations"]

SAID = Message("user", "Who is it?")
FACTS = ["My cat is called Tom.", "I live in Oslo.", "I work as a baker.", "I like tea."]


def trimmed(recording: Recording) -> list[str]:
    graph = graph_of(recording)
    return [graph.content(graph.inputs(op.origin)[0].version) for op in operations(recording, "trim")]


def window(chat: Chat, number: int, *before: dict[str, str]) -> None:
    """Two exchanges and the question, behind what is always said anew."""
    chat.history = [*before, *[message for message in chat.history if "fixed" not in message][-4:]]
    chat.say(FACTS[number], f"I will keep in mind that {FACTS[number]}")
    chat.history = chat.history[len(before) :]


@pytest.mark.usefixtures("content_on")
def test_a_system_prompt_that_always_changes_is_no_summary(chat: Chat, recording: Recording) -> None:
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
def test_notes_before_the_history_take_nothing_of_it(chat: Chat, recording: Recording) -> None:
    chat.history = []
    for number in range(4):
        window(chat, number, {"role": "user", "content": f"Notes for this question: number {number}."})
    assert trimmed(recording) == FACTS[:1]
    replaced = [op for op in operations(recording, "summarize") for _ in op.outputs]
    assert len(replaced) == 3
    assert all(len(op.outputs) == 1 and "inferred" in op.incomplete for op in replaced)


@pytest.mark.usefixtures("content_on")
def test_a_question_kept_without_its_notes_replaces_its_own_message_alone(chat: Chat, recording: Recording) -> None:
    chat.history = []
    for number, fact in enumerate(FACTS):
        chat.say(f"Notes: {number}.\n{fact}", f"I will keep in mind that {fact}")
        chat.history[-2] = {"role": "user", "content": fact}
        chat.history = chat.history[-4:]
    for op in operations(recording, "summarize"):
        [read], [written] = [v for v in op.inputs if v.role == "previous"], op.outputs
        assert read.ref == written.ref
        assert written.content in FACTS
    assert trimmed(recording) == FACTS[:1]


def test_a_reply_is_known_without_the_white_space_around_it(chat: Chat, recording: Recording) -> None:
    for fact in FACTS:
        chat.say(fact, f"I will keep in mind that {fact}\n")
        chat.history[-1]["content"] = chat.history[-1]["content"].strip()
    assert [len([v for v in op.inputs if v.role == "history"]) for op in answers(recording)] == [0, 2, 4, 6]
    assert len(operations(recording, "memory_update")) == 3


def test_what_one_line_has_trimmed_another_does_not_trim_again(chat: Chat, recording: Recording) -> None:
    for fact in FACTS[:3]:
        chat.say(fact, f"I will keep in mind that {fact}")
    kept = chat.history[3:]
    for reply in ("It is a fine day.", "It is a day like any other."):  # asked again
        chat.history = list(kept)
        chat.say("And now?", reply)
    assert len(operations(recording, "trim")) == 1


def test_a_long_reply_tells_a_conversation_though_its_question_was_rewritten(chat: Chat, recording: Recording) -> None:
    reply = "The garage code is on the note beside the door, under the picture of the boat."
    chat.say("Notes: many.\nWhat is the garage code?", reply)
    chat.history = [{"role": "user", "content": "What is the garage code?"}, {"role": "assistant", "content": reply}]
    chat.say("And the plumber?", "Mr Vik.")
    [_, last] = answers(recording)
    assert "inferred" in last.incomplete
    assert operations(recording, "memory_update")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing forks here")
def test_a_child_tells_its_own_line_under_refs_of_its_own() -> None:
    def known() -> Conversation:
        [one] = conversations._known.values()
        return one

    entry = Entry("key", "state:mark.1", text="Hello there.")
    conversations.remember(Conversation("mark", "mark", "scope", entries=(entry,)), [entry], Request("m", (SAID,)), "")
    reader, writer = os.pipe()
    if not os.fork():
        os.write(writer, f"{known().mark} {known().id} {known().continued} {known().new_entry(SAID).ref}".encode())
        os._exit(0)
    os.wait()
    mark, id, continued, ref = os.read(reader, 1000).decode().split()
    assert (known().mark, known().continued) == ("mark", False)
    assert mark == id != "mark"
    assert continued == "True"
    assert ref == f"state:{mark}.1"
