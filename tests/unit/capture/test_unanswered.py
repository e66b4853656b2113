"""An answer outside any turn says that a search of the process may have been its own."""

from __future__ import annotations

from contextvars import Context

import pytest

from memtrace_otel import semconv
from memtrace_otel.capture import operation, unanswered
from memtrace_otel.capture.unanswered import answered, searched
from memtrace_otel.semconv import Incomplete
from tests.conftest import Recording


def search(recording: Recording) -> None:
    with operation("search_memory", kind="retrieve", system="notes", tracer=recording.tracer) as found:
        found.read("memory:1", role="hit", content="Ana lives in Lisbon")


def answer(recording: Recording, *, read: str = "", kind: str = "respond") -> bool:
    with operation("chat", kind="respond", system="model", tracer=recording.tracer) as chat:
        if read:
            chat.read(read, role="context", content="Ana lives in Lisbon")
        if kind != "respond":
            chat.become(f"memtrace.{kind}", kind)
        chat.wrote("answer:1", role="answer", content="Porto")
    reasons = (recording.spans()[-1].attributes or {}).get(semconv.INCOMPLETE, ())
    return Incomplete.UNKNOWN_TURN in reasons  # type: ignore[operator]


def test_an_answer_in_another_context_than_its_search_says_so(recording: Recording) -> None:
    Context().run(search, recording)
    assert Context().run(answer, recording)


def test_an_answer_of_a_program_that_searched_nothing_lacks_nothing(recording: Recording) -> None:
    assert not Context().run(answer, recording)


def test_an_answer_in_the_context_of_its_search_lacks_nothing(recording: Recording) -> None:
    def turn() -> bool:
        search(recording)
        return answer(recording)

    assert not Context().run(turn)
    assert not Context().run(answer, recording)  # the search has got its answer


def test_an_answer_in_the_trace_of_its_search_lacks_nothing(recording: Recording) -> None:
    def turn() -> None:
        with recording.tracer.start_as_current_span("turn"):
            search(recording)
            assert not answer(recording)

    Context().run(turn)
    assert not Context().run(answer, recording)


def test_an_answer_inside_a_span_of_the_program_lacks_nothing(recording: Recording) -> None:
    def turn() -> bool:
        with recording.tracer.start_as_current_span("turn"):
            return answer(recording)

    Context().run(search, recording)
    assert not Context().run(turn)


def test_an_answer_that_names_what_it_read_and_a_judge_lack_nothing(recording: Recording) -> None:
    Context().run(search, recording)
    assert not Context().run(answer, recording, read="memory:1")
    assert not Context().run(answer, recording, kind="judge")


def test_searches_are_forgotten_by_number_and_time(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 1000.0
    monkeypatch.setattr(unanswered, "monotonic", lambda: now)
    for n in range(1000):
        searched(f"origin {n}")
    assert len(unanswered._unanswered) == 256
    assert answered(None)
    now += 61
    assert not answered(None)
