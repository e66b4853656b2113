"""An answer outside any turn says that a search of the process may have been its own."""

from __future__ import annotations

from contextvars import Context

import pytest

from memtrace_otel import semconv
from memtrace_otel.capture import operation, turn
from memtrace_otel.semconv import Incomplete
from tests.conftest import Recording


def search(recording: Recording, query: str = "", hit: str = "Ana lives in Lisbon") -> None:
    with operation("search_memory", kind="retrieve", system="notes", tracer=recording.tracer) as found:
        if query:
            found.read("query:1", role="query", content=query)
        if hit:
            found.read("memory:1", role="hit", content=hit)


def answer(
    recording: Recording, *, read: str = "", kind: str = "respond", said: str = "", instructions: str = ""
) -> bool:
    with operation("chat", kind="respond", system="model", tracer=recording.tracer) as chat:
        if said:
            chat.read("query:2", role="query", content=said)
        if instructions:
            chat.read("prompt:1", role="prompt", content=instructions)
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


def test_an_answer_inside_a_span_of_the_program_lacks_a_search_only_where_something_tells(recording: Recording) -> None:
    def turn(instructions: str) -> bool:
        with recording.tracer.start_as_current_span("turn"):
            return answer(recording, instructions=instructions)

    Context().run(search, recording)
    assert not Context().run(turn, "")
    assert not Context().run(turn, "Rhyme.")
    assert Context().run(turn, f"Notes:\n- {HIT}")  # an executor, say, has lost the context of the search


def test_an_answer_that_names_what_it_read_and_a_judge_lack_nothing(recording: Recording) -> None:
    Context().run(search, recording)
    assert not Context().run(answer, recording, read="memory:1")
    assert not Context().run(answer, recording, kind="judge")


QUESTION = "Where does Ana live?"
HIT = "Ana lives in Lisbon"


@pytest.mark.parametrize(
    "given",
    [
        {"said": QUESTION, "instructions": f"Notes:\n- {HIT}"},
        {"said": "Say what you know.\n\n- Ana lives\n  in Lisbon"},
        {"said": "Hello!", "instructions": f"The user asks: {QUESTION}"},
        {},  # nothing is known of what it was given
    ],
    ids=["both", "a hit", "the query", "unknown"],
)
def test_an_answer_that_was_given_what_was_searched_or_found_says_so(
    recording: Recording, given: dict[str, str]
) -> None:
    Context().run(search, recording, QUESTION)
    assert Context().run(lambda: answer(recording, **given))


@pytest.mark.parametrize("hit", [HIT, ""])
def test_an_answer_that_has_nothing_to_do_with_the_search_lacks_nothing(recording: Recording, hit: str) -> None:
    Context().run(search, recording, QUESTION, hit)
    assert not Context().run(lambda: answer(recording, said="Write a poem on rain.", instructions="Rhyme."))


def test_a_search_that_found_nothing_is_told_by_its_query(recording: Recording) -> None:
    Context().run(search, recording, QUESTION, "")
    assert Context().run(lambda: answer(recording, said=QUESTION))


def test_a_search_that_says_nothing_of_itself_may_be_that_of_any_answer(recording: Recording) -> None:
    Context().run(search, recording, "", "")
    assert Context().run(lambda: answer(recording, said="Write a poem on rain."))


def test_too_much_to_be_looked_for_may_be_in_any_prompt(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    Context().run(search, recording, QUESTION)
    assert not Context().run(lambda: answer(recording, said="Write a poem on rain."))
    monkeypatch.setattr(turn, "PROMPT", 10)
    assert Context().run(lambda: answer(recording, said="Write a poem on rain."))
    monkeypatch.undo()
    monkeypatch.setattr(turn, "WORK", 10)
    assert Context().run(lambda: answer(recording, said="Write a poem on rain."))


def test_an_answer_did_not_read_a_search_that_came_after_it_began(recording: Recording) -> None:
    def turn() -> bool:
        with operation("chat", kind="respond", system="model", tracer=recording.tracer) as asked:
            Context().run(search, recording, QUESTION)
            asked.read("query:2", role="query", content=QUESTION)
        [chat] = [span for span in recording.spans() if span.name == "chat"]
        return Incomplete.UNKNOWN_TURN in (chat.attributes or {}).get(semconv.INCOMPLETE, ())  # type: ignore[operator]

    Context().run(search, recording, "What is the capital of France?", "Paris is the capital of France")
    assert not Context().run(turn)
