"""Conversations with repeated texts: a window or a summary continues the newest turn."""

from __future__ import annotations

from typing import Any

import pytest

from memtrace_otel.model import OperationSpan
from tests.conftest import Recording
from tests.integration.openai.conftest import completion
from tests.integration.openai.test_long_context import (
    Chat,
    actions,
    answers,
    chat,
    no_conversations,
    operations,
)

__all__ = ["chat", "no_conversations"]

pytestmark = pytest.mark.usefixtures("content_on")

ON, OFF, NOTED = "Turn the light on.", "Turn the light off.", "Noted."
LONG = "I have noted that for you, and I will remember it the next time that we talk about it."
NAMED: dict[str, Any] = {"metadata": {"conversation_id": "home"}}
USER: dict[str, Any] = {"user": "ann"}
KNOWN = pytest.mark.parametrize("known", [NAMED | USER, NAMED, USER, {}], ids=["both", "named", "user", "nothing"])


def window(chat: Chat, size: int, said: list[str], reply: str = NOTED, **known: Any) -> None:
    """Turns with a window: the last messages and the question."""
    chat.history = []
    for text in said:
        chat.history = chat.history[-(size - 1) :]
        chat.say(text, reply, **known)


def turns_read(recording: Recording) -> list[list[int]]:
    """Numbers of the calls whose replies each call reads; no call reads a trimmed version."""
    number = {answer.origin: at for at, answer in enumerate(answers(recording))}
    replied = {
        (stored.outputs[written].ref, stored.origin): number[stored.inputs[read].origin]
        for stored in operations(recording, "memory_update")
        for read, written in stored.flow or ()
        if stored.inputs[read].origin
    }
    gone = {v.ref: span.start for span in operations(recording, "trim") for v in span.outputs}
    for answer in answers(recording):
        assert not [v.ref for v in answer.inputs if gone.get(v.ref, answer.start) < answer.start]
    return [
        [replied[v.ref, v.origin] for v in answer.inputs if (v.ref, v.origin) in replied]
        for answer in answers(recording)
    ]


def is_doubtful(span: OperationSpan) -> bool:
    return bool({"inferred", "unknown_origin"} & set(span.incomplete))


# --- windows --------------------------------------------------------------------------------------------------------
@KNOWN
@pytest.mark.parametrize("reply", [NOTED, LONG], ids=["short", "long"])
def test_a_window_over_repeated_texts_reads_the_last_turns(
    chat: Chat, recording: Recording, known: dict[str, Any], reply: str
) -> None:
    window(chat, 5, [ON, OFF, ON, OFF, "What did I ask last?"], reply, **known)
    assert turns_read(recording) == [[], [0], [0, 1], [1, 2], [2, 3]]
    assert actions(recording).count("DELETE") == 4
    asked = [v.ref for answer in answers(recording) for v in answer.inputs if v.role == "query"]
    assert len(set(asked)) == 5


@KNOWN
def test_a_window_of_one_exchange_reads_the_last_exchange(
    chat: Chat, recording: Recording, known: dict[str, Any]
) -> None:
    window(chat, 3, ["Remember tea", "Remember cake", "Remember tea", "What now?"], LONG, **known)
    assert turns_read(recording) == [[], [0], [1], [2]]
    assert not is_doubtful(answers(recording)[2])


@KNOWN
def test_equal_prompts_are_separate_turns_marked_inferred(
    chat: Chat, recording: Recording, known: dict[str, Any]
) -> None:
    """The third prompt may be a retry of the second: both are equal."""
    window(chat, 3, [ON] * 5, **known)
    assert turns_read(recording) == [[], [0], [1], [2], [3]]
    assert [is_doubtful(answer) for answer in answers(recording)] == [False, False, True, True, True]


# --- tools ----------------------------------------------------------------------------------------------------------
def agent(chat: Chat, size: int, said: list[str], **known: Any) -> None:
    """An agent that calls one tool in each turn."""
    history: list[Any] = []

    def call(**reply: Any) -> None:
        last = history[-size:]
        chat.server.replies = [completion(reply)]
        chat.client.chat.completions.create(model="m1", messages=last, **known)
        history.append({"role": "assistant", "content": None} | reply)

    for number, text in enumerate(said):
        with chat.recording.tracer.start_as_current_span("turn"):
            history.append({"role": "user", "content": text})
            function = {"name": "switch", "arguments": f'{{"said": "{text}"}}'}
            call(tool_calls=[{"id": f"call-{number}", "type": "function", "function": function}])
            history.append({"role": "tool", "tool_call_id": f"call-{number}", "content": "ok"})
            call(content="Done.")


@KNOWN
@pytest.mark.parametrize("said", [[ON, OFF, ON, OFF], [ON] * 4], ids=["in turn", "equal"])
@pytest.mark.parametrize("size", [7, 8])
def test_the_window_of_an_agent_reads_its_last_calls(
    chat: Chat, recording: Recording, known: dict[str, Any], said: list[str], size: int
) -> None:
    agent(chat, size, said, **known)
    read = turns_read(recording)
    assert read[6] == [2, 3, 4, 5][-len(read[6]) :]
    assert read[7] == [3, 4, 5, 6][-len(read[7]) :]
    assert read[5][-1] == 4
    if "metadata" in known:
        assert not [answer for answer in answers(recording) if is_doubtful(answer)]
    asked = [v.ref for answer in answers(recording) for v in answer.inputs if v.role == "query"]
    assert len(set(asked)) == 4
    written = [v.ref for stored in operations(recording, "memory_update") for v in stored.outputs]
    assert len(written) == len(set(written)) == 15


# --- a summary ------------------------------------------------------------------------------------------------------
@KNOWN
@pytest.mark.parametrize("keep", [1, 2])
def test_a_summary_beside_a_repeated_reply_replaces_all_messages_before(
    chat: Chat, recording: Recording, known: dict[str, Any], keep: int
) -> None:
    chat.history = []
    facts = ["I like tea.", "I like cake.", "I live in Porto.", "My dog is Rex."]
    for fact in facts:
        chat.say(fact, NOTED, **known)
    old, kept = chat.history[:-keep], chat.history[-keep:]
    with recording.tracer.start_as_current_span("turn"):
        chat.server.replies = ["Ana likes tea and cake, lives in Porto and has a dog that is called Rex, as she says."]
        told: list[Any] = [{"role": "user", "content": "\n".join(f"{m['role']}: {m['content']}" for m in old)}]
        made = chat.client.chat.completions.create(model="m2", messages=told).choices[0].message.content
        chat.history = [{"role": "system", "content": f"Summary: {made}"}, *kept]
        chat.say("Where do I live?", "In Porto.", **known)
    [summary] = operations(recording, "summarize")
    stored = [v for span in operations(recording, "memory_update") for v in span.outputs]
    assert [v.content for v in stored if v.content in facts] == facts
    assert len(stored) == 8
    assert [v.ref for v in summary.outputs] == [v.ref for v in sorted(stored, key=number_of)][:-keep]
    assert is_doubtful(summary) is (keep == 1 and "metadata" not in known)


def number_of(written: Any) -> int:
    return int(written.ref.rpartition(".")[2])
