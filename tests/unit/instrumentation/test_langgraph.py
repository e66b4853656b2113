"""Texts of stored values and changes of threads, without LangGraph itself."""

from __future__ import annotations

import contextvars
import json
from dataclasses import dataclass
from typing import Any

import pytest
from opentelemetry.context import Context
from opentelemetry.trace import use_span

from memtrace_otel.capture import Operation, recall, variable_ref
from memtrace_otel.instrumentation.chat_history.messages import call_text
from memtrace_otel.instrumentation.langchain.langgraph import threads
from memtrace_otel.instrumentation.langchain.langgraph.store import text_of
from memtrace_otel.instrumentation.langchain.langgraph.threads import Change, Threads, entries_of
from tests.conftest import Recording


@dataclass
class Message:
    content: Any
    id: str | None
    type: str = "human"
    tool_calls: Any = None


class Hostile:
    def __str__(self) -> str:
        raise RuntimeError("no text today")

    __repr__ = __str__


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        ({"text": "a", "more": "b"}, "a"),
        ({"content": {"content": "a"}}, "a"),
        ({"content": {"x": 1, "y": 2}}, '{"content": {"x": 1, "y": 2}}'),
        ({"a": {"b": {"c": {"d": "too deep"}}}}, '{"a": {"b": {"c": {"d": "too deep"}}}}'),
        ({"one": "a", "two": "b"}, '{"one": "a", "two": "b"}'),
        ({"a": Hostile(), "b": 1}, "<dict>"),
        (None, ""),
    ],
)
def test_the_text_of_a_stored_value(value: Any, text: str) -> None:
    assert text_of(value) == text


def test_entries_of_a_checkpoint() -> None:
    values = {
        "messages": [Message("hi", "h1"), Message("", "a1", "ai", [{"name": "f"}]), Message("lost", None)],
        "summary": "Ann lives in Paris.",
        "user": "ann",
        "branch:to:x": "not a text",
        "__start__": "not a text",
        "count": 3,
        "list": [1, 2],
    }
    found = entries_of("t1", values)
    assert [(ref, entry.text) for ref, entry in found.items()] == [
        ("state:t1/h1", "hi"),
        ("state:t1/a1", '[{"name": "f"}]'),
        (variable_ref("state", "user: lost").replace(":", ":t1/messages/"), "lost"),  # it has no id
        ("state:t1/summary", "Ann lives in Paris."),
    ]
    assert list(entries_of("t1", values, ["summary"])) == ["state:t1/summary"]


def test_other_values_are_no_messages(monkeypatch: pytest.MonkeyPatch) -> None:
    read: list[Any] = []
    monkeypatch.setattr(threads, "message_of", lambda given: read.append(given))  # pyright: ignore
    others: dict[str, list[Any]] = {
        "numbers": [1, 0.5, None, "some words", b"bytes"],
        "rows": [{"a": 1, "content": "no role"}, {"type": "web", "content": "no speaker"}, {"role": "user"}],
        "odd": [Message("no speaker", "1", "web"), {"type": "step", "tool_calls": 3}],
    }
    assert entries_of("t1", others) == {}
    assert read == []


def test_an_unknown_item_does_not_drop_messages() -> None:
    class Frame:
        def __bool__(self) -> bool:
            raise ValueError("ambiguous")

    odd: list[Any] = [
        {"type": "step", "tool_calls": 3},
        {"role": Frame(), "content": "lost"},
        Message(Frame(), "1", "human", Frame()),
        {"role": "user", "content": "two", "tool_calls": 5},
        {"role": "assistant", "content": None, "tool_calls": [{"function": {"name": "f", "arguments": Frame()}}]},
    ]
    found = entries_of("t1", {"odd": odd, "messages": [Message("hi", "h1")]})
    assert [entry.role for entry in found.values()] == ["user", "user", "assistant", "user"]
    assert [entry.text for entry in found.values()][1::2] == ["two", "hi"]


def change(known: Threads, step: str, channels: list[str], **values: Any) -> tuple[list[str], list[str], list[str]]:
    """A step `<parent>><checkpoint>`."""
    parent, _, checkpoint = step.partition(">")
    made = known.change("s", "t1", parent, entries_of("t1", values, channels), channels)
    known.apply("s", "t1", checkpoint, made)
    return [e.ref for e in made.added], [e.ref for e in made.updated], list(made.removed)


def test_only_changed_channels_change_a_thread() -> None:
    known = Threads()
    first = [Message("one", "1"), Message("two", "2")]
    assert change(known, ">a", ["messages", "summary"], messages=first, summary="a summary") == (
        ["state:t1/1", "state:t1/2", "state:t1/summary"],
        [],
        [],
    )
    assert change(known, "a>b", ["summary"], summary="another summary") == ([], ["state:t1/summary"], [])
    then = [Message("two!", "2"), Message("three", "3")]
    assert change(known, "b>c", ["messages"], messages=then) == (["state:t1/3"], ["state:t1/2"], ["state:t1/1"])
    assert change(known, "c>d", ["messages"], messages=then) == ([], [], [])
    assert sorted(known.forget("s", "t1")) == ["state:t1/2", "state:t1/3", "state:t1/summary"]
    assert known.forget("s", "t1") == []


def test_a_checkpoint_is_compared_with_its_parent() -> None:
    known, one, two = Threads(), Message("one", "1"), Message("two", "2")
    change(known, ">a", ["messages"], messages=[one])
    change(known, "a>b", ["messages"], messages=[one, two])
    other = Message("another", "3")
    assert change(known, "a>c", ["messages"], messages=[one, other]) == (["state:t1/3"], [], [])
    assert change(known, "b>d", ["messages"], messages=[two]) == ([], [], ["state:t1/1"])
    assert change(known, "unknown>e", ["messages"], messages=[two]) == ([], [], [])
    assert change(known, "e>f", ["messages"], messages=[]) == ([], [], ["state:t1/2"])


def test_threads_and_checkpoints_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_THREADS", 3)
    monkeypatch.setattr(threads, "_HELD", 8)
    known = Threads()
    for number in range(10):
        entries = entries_of(f"t{number}", {"messages": [Message("hi", "1")]})
        known.apply("s", f"t{number}", "a", Change(list(entries.values()), [], {}, {}))
    assert [len(known.forget("s", f"t{number}")) for number in (0, 6, 7, 9)] == [0, 0, 1, 1]
    assert [place[1] for place in known._checkpoints] == ["t6", "t7", "t8", "t9"]


def test_a_stored_text_is_found_in_the_call_of_a_tool() -> None:
    turn = recall.Turn()
    for number, text in enumerate(('He says "tea",\nnot coffee.', "tea", "no")):
        turn.called(recall.Recalled(f"completion:{number}", "o", call_text("remember", json.dumps({"content": text}))))
    found = [turn.call_with(text) for text in ('He says "tea",\nnot coffee.', "He drinks milk.", "no")]
    assert [call.ref if call else None for call in found] == ["completion:0", None, None]


def test_copies_of_a_context_share_a_turn_that_has_no_span(recording: Recording) -> None:
    def search() -> None:
        with Operation("retrieval", kind="retrieve", system="x", tracer=recording.tracer) as operation:
            operation.read("chunk:1", role="hit", content="Ann lives in Paris.")

    def hits() -> list[str]:
        turn = recall.recall("")
        return [hit.ref for hit in turn.found_in("Ann lives in Paris.").hits] if turn else []

    def turn() -> list[str]:
        recall.share_turn()
        contextvars.copy_context().run(search)
        return contextvars.copy_context().run(hits)

    assert contextvars.copy_context().run(turn) == ["chunk:1"]
    contextvars.copy_context().run(search)
    assert hits() == []  # of another context
    with recording.tracer.start_as_current_span("turn"):
        recall.share_turn()
        search()
    assert hits() == ["chunk:1"]
    with use_span(recording.tracer.start_span("own", Context())):
        assert recall.turn_of(recall.trace_here()).retrievals() == []  # a trace of its own has a turn of its own
