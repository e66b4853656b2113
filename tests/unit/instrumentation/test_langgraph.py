"""What values say and how a thread changes, without LangGraph itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from memtrace_otel.instrumentation.langgraph import threads
from memtrace_otel.instrumentation.langgraph.threads import Change, Threads, entries_of
from memtrace_otel.instrumentation.langgraph.values import text_of


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
def test_what_a_value_says(value: Any, text: str) -> None:
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
        ("state:t1/summary", "Ann lives in Paris."),
    ]
    assert list(entries_of("t1", values, ["summary"])) == ["state:t1/summary"]


def change(known: Threads, channels: list[str], **values: Any) -> tuple[list[str], list[str], list[str]]:
    made = known.change("s", "t1", entries_of("t1", values, channels), channels)
    known.apply("s", "t1", made)
    return [e.ref for e in made.added], [e.ref for e in made.updated], made.removed


def test_a_thread_changes_only_where_its_channels_do() -> None:
    known = Threads()
    assert not known.knows("s", "t1")
    first = [Message("one", "1"), Message("two", "2")]
    assert change(known, ["messages", "summary"], messages=first, summary="a summary") == (
        ["state:t1/1", "state:t1/2", "state:t1/summary"],
        [],
        [],
    )
    assert change(known, ["summary"], summary="another summary") == ([], ["state:t1/summary"], [])
    then = [Message("two!", "2"), Message("three", "3")]
    assert change(known, ["messages"], messages=then) == (["state:t1/3"], ["state:t1/2"], ["state:t1/1"])
    assert change(known, ["messages"], messages=then) == ([], [], [])
    assert sorted(known.forget("s", "t1")) == ["state:t1/2", "state:t1/3", "state:t1/summary"]
    assert known.forget("s", "t1") == []


def test_threads_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(threads, "_THREADS", 3)
    known = Threads()
    for number in range(10):
        entries = entries_of(f"t{number}", {"messages": [Message("hi", "1")]})
        known.apply("s", f"t{number}", Change(list(entries.values()), [], []))
    assert [known.knows("s", f"t{number}") for number in (0, 6, 7, 9)] == [False, False, True, True]
