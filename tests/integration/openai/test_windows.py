"""Sliding windows under prompts that change all the time: what is trimmed is trimmed, whatever else is new."""

from __future__ import annotations

import os
from contextlib import suppress

import openai
import pytest

from memtrace_otel.instrumentation.chat_history import conversations
from memtrace_otel.instrumentation.chat_history.alignment import Conversation, Entry
from memtrace_otel.instrumentation.chat_history.messages import Message, Request
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


# --- a prompt that is sent again ------------------------------------------------------------------------------------
def ask(chat: Chat, *replies: str | int) -> None:
    """Send the history once for each reply; a status is an error."""
    for reply in replies:
        chat.server.replies.append(reply)
        with suppress(openai.APIStatusError):
            answer = chat.client.chat.completions.create(model="m1", messages=chat.history)
            said = str(answer.choices[0].message.content)
    chat.history.append({"role": "assistant", "content": said})


def questions(recording: Recording) -> list[str]:
    return [v.ref for answer in answers(recording) for v in answer.inputs if v.role == "query"]


@pytest.mark.parametrize("before", [(), FACTS[:1]])
def test_a_prompt_that_failed_and_is_sent_again_says_the_same(
    before: tuple[str, ...], chat: Chat, recording: Recording
) -> None:
    for fact in before:
        chat.say(fact, f"I will keep in mind that {fact}")
    chat.history.append({"role": "user", "content": FACTS[1]})
    ask(chat, 500, 429, "A fine city.")
    chat.say(FACTS[2], "Early mornings.")
    *_, failed, again, retried, last = answers(recording)
    assert len({*questions(recording)[-4:-1]}) == 1
    assert failed.scope == again.scope == (last.scope if before else "")
    assert len({span.scope for span in operations(recording, "memory_update")}) == 1
    histories = [{v.ref for v in span.inputs if v.role == "history"} for span in (retried, last)]
    assert len(histories[1] - histories[0]) == 2 * (len(before) + 1) - len(histories[0])
    assert not [v for v in histories[1] if not v.startswith("state:")]


def test_a_prompt_that_is_sent_again_for_another_reply_changes_the_history_once(
    chat: Chat, recording: Recording
) -> None:
    for fact in FACTS[:2]:
        chat.say(fact, f"I will keep in mind that {fact}")
    chat.history = [SYSTEM, *chat.history[3:], {"role": "user", "content": "What do you know of me?"}]
    ask(chat, "No JSON.", "{}", '{"city": "Oslo"}')
    assert len(operations(recording, "memory_update")) == 2
    assert len(operations(recording, "trim")) == 1
    *_, first, second, third = answers(recording)
    assert first.inputs == second.inputs == third.inputs
    chat.say("Thank you.", "You are welcome.")
    [*_, last] = answers(recording)
    read = [v for v in last.inputs if v.role == "history"]
    assert {v.ref for v in third.inputs if v.role == "history"} < {v.ref for v in read}
    graph = graph_of(recording)
    replies = {
        node.origin for node in graph.slice_of_answer(last.origin) if getattr(node, "ref", "").startswith("answer:")
    }
    assert not replies & {first.origin, second.origin}
    assert third.origin in replies


def test_two_replies_to_one_prompt_are_gone_on_from_apart(chat: Chat, recording: Recording) -> None:
    chat.say(FACTS[0], f"I will keep in mind that {FACTS[0]}")
    chat.history.append({"role": "user", "content": FACTS[1]})
    asked, names = list(chat.history), ["A fine city, that is.", "A rainy city, that is."]
    ask(chat, *names)
    for name in names:
        chat.history = [*asked, {"role": "assistant", "content": name}]
        chat.say("Is it?", "Yes.")
    written = [v.ref for span in operations(recording, "memory_update") for v in span.outputs]
    assert len(written) == len(set(written)) == 6
    graph, said = graph_of(recording), [a.origin for a in answers(recording)]
    for one, other, last in ((1, 2, 3), (2, 1, 4)):
        origins = {getattr(node, "origin", "") for node in graph.slice_of_answer(said[last])}
        assert said[one] in origins
        assert said[other] not in origins


@pytest.mark.parametrize("parsed_by_program", [True, False])
def test_an_exchange_before_a_reply_that_nobody_knows_is_written_once(
    chat: Chat, recording: Recording, parsed_by_program: bool
) -> None:
    """The program has read it from the body itself, or has changed it."""
    chat.say(FACTS[0], "Nice name.")
    chat.history.append({"role": "user", "content": FACTS[1]})
    chat.server.replies = ["A fine city."]
    create = chat.client.chat.completions.with_streaming_response.create
    if parsed_by_program:
        with create(model="m1", messages=chat.history) as response:
            chat.history.append({"role": "assistant", "content": response.parse().choices[0].message.content})
    else:
        chat.client.chat.completions.create(model="m1", messages=chat.history)
        chat.history.append({"role": "assistant", "content": "What a fine city that is!"})
    chat.history.append({"role": "user", "content": FACTS[2]})
    ask(chat, "No JSON.", "{}")
    said = [v.ref for span in operations(recording, "memory_update") for v in span.inputs]
    assert len(said) == len(set(said)) == 4
    *_, second, first, again = answers(recording)
    assert [v.ref for v in second.inputs if v.role == "query"] == [said[2].replace("message:", "query:")]
    assert first.inputs == again.inputs
    assert [v.ref for v in first.inputs if v.role == "history"] == [
        v.ref for span in operations(recording, "memory_update") for v in span.outputs
    ]


def test_examples_before_a_question_are_no_conversation_of_those_who_ask(chat: Chat, recording: Recording) -> None:
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


def test_what_the_package_itself_sends_again_is_one_call(server: ModelServer, recording: Recording) -> None:
    server.replies = [500, 429, "A fine city."]
    client = openai.OpenAI(base_url=server.url, api_key="none", max_retries=2)
    client.chat.completions.create(model="m1", messages=[{"role": "user", "content": FACTS[1]}])
    assert len(recording.spans()) == 1


# --- a summary in several messages ----------------------------------------------------------------------------------
SUMMARY = [
    {"role": "user", "content": "Summary so far: the cat is Tom."},
    {"role": "assistant", "content": "Understood."},
]


def shortened(chat: Chat) -> None:
    for fact in FACTS[:2]:
        chat.say(fact, f"I will keep in mind that {fact}")
    chat.history = [*SUMMARY, *chat.history[3:]]
    chat.say(FACTS[2], "Early mornings.")


@pytest.mark.usefixtures("content_on")
def test_a_summary_that_was_said_and_acknowledged_is_one_and_stays(chat: Chat, recording: Recording) -> None:
    shortened(chat)
    for text in ("Who is Tom?", "And where do I live?"):
        chat.say(text, f"I have been told that. {text}")
    [summary] = operations(recording, "summarize")
    assert not operations(recording, "trim")
    for number, answer in enumerate(answers(recording)[2:]):
        read = [v for v in answer.inputs if v.role == "history"]
        assert [v.ref for v in read if v.origin == summary.origin] == [summary.outputs[0].ref]
        assert len(read) == len({v.ref for v in read}) == 3 + 2 * number


def test_half_of_a_summary_still_stands_for_what_it_was_made_of(chat: Chat, recording: Recording) -> None:
    shortened(chat)
    del chat.history[1]
    chat.say("Who is Tom?", "Your cat.")
    assert not operations(recording, "trim")
    [summary] = operations(recording, "summarize")
    assert summary.origin in {v.origin for v in answers(recording)[-1].inputs}
