"""Several owners ask the same question and have records of the same words: an answer reads its own search, or none."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from contextvars import Context, copy_context
from time import perf_counter
from typing import Any

import pytest

from memtrace_otel import semconv
from memtrace_otel.capture import operation, recall, searches
from memtrace_otel.semconv import Incomplete
from tests.conftest import Recording

QUESTION, TEXT = "Where do I live now?", "The user lives in Paris."
UNKNOWN: tuple[list[str], bool] = ([], True)


class Program:
    """Searches the memories of its users and answers as an instrumented model call does."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._owners: dict[str, str] = {}

    def search(self, owner: str, *texts: str) -> None:
        tracer = self._recording.tracer
        with operation("search_memory", kind="retrieve", system="notes", scope=owner, tracer=tracer) as found:
            found.read("query:home", role="query", content=QUESTION)
            for number, text in enumerate(texts or (TEXT,)):
                if text:
                    found.read(f"memory:{owner}-{number}", role="hit", content=text)
        self._owners[found.origin] = owner

    def answer(self, *texts: str, spanned: bool = False) -> tuple[list[str], bool]:
        """The records that the answer to the question reads, or the owner of whom nothing was found, and whether it
        says that its turn is unknown."""
        prompt = "\n".join((*(texts or (TEXT,)), QUESTION))
        tracer = self._recording.tracer
        with tracer.start_as_current_span("turn") if spanned else nullcontext():
            trace_id, turn = recall.trace_here(), recall.turn_here()
            with operation("chat", kind="respond", system="model", tracer=tracer) as chat:
                queries, hits, *_ = turn.found_in(prompt, trace_id) if turn else ([], [])
                nothing = [self._owners[search] for search in turn.fruitless_for(queries)] if turn else []
                chat.read("query:home", role="query", content=QUESTION)
                chat.read("prompt:1", role="prompt", content=prompt)
                for hit in hits:
                    chat.read(hit.ref, role="context", content=hit.text)
                for owner in nothing:
                    chat.read(f"context:{owner}", role="context")
                if turn:
                    turn.gave(hits, trace_id)
        [span] = [
            s for s in self._recording.named("chat") if s.context and chat.origin.endswith(f"{s.context.span_id:016x}")
        ]
        reasons: Any = (span.attributes or {}).get(semconv.INCOMPLETE, ())
        return [hit.ref for hit in hits] + nothing, Incomplete.UNKNOWN_TURN in reasons


@pytest.fixture
def program(recording: Recording) -> Program:
    return Program(recording)


ELSEWHERE: dict[str, Callable[[], Context]] = {"a copy of the context": copy_context, "a thread": Context}


@pytest.mark.parametrize("elsewhere", ELSEWHERE.values(), ids=ELSEWHERE)
@pytest.mark.parametrize("spanned", [False, True])
def test_what_one_owner_was_given_is_not_anothers_whose_search_waits_elsewhere(
    program: Program, elsewhere: Callable[[], Context], spanned: bool
) -> None:
    def serve() -> None:
        program.search("ann")
        assert program.answer() == (["memory:ann-0"], False)
        for owner in ("bob", "cy"):
            elsewhere().run(program.search, owner)
            assert program.answer(spanned=spanned) == UNKNOWN

    Context().run(serve)


def test_an_answer_whose_own_search_waits_elsewhere_says_so_though_its_context_had_searched_before(
    program: Program,
) -> None:
    def serve() -> None:
        program.search("ann")
        program.answer()
        copy_context().run(program.search, "bob", "The user lives in Rome.")
        assert program.answer("The user lives in Rome.") == UNKNOWN
        assert program.answer() == (["memory:ann-0"], False)  # the words of the prompt are ann's alone

    Context().run(serve)


def test_a_context_that_asks_again_reads_its_own_search_again_while_nobody_waits(program: Program) -> None:
    def serve() -> None:
        program.search("ann")
        assert [program.answer() for _ in range(2)] == [(["memory:ann-0"], False)] * 2
        copy_context().run(program.search, "ann")  # of the same owner: the same record
        assert program.answer() == (["memory:ann-0"], False)

    Context().run(serve)


def test_a_search_that_waits_elsewhere_takes_nothing_from_the_fresh_search_of_a_context(program: Program) -> None:
    contexts = [Context() for _ in range(3)]
    for owner, context in zip(("ann", "bob", "cy"), contexts, strict=True):
        context.run(program.search, owner)
    found = [context.run(program.answer) for context in contexts]
    assert found == [(["memory:ann-0"], False), (["memory:bob-0"], False), (["memory:cy-0"], False)]


def test_a_trace_reads_its_search_again_though_another_owners_waits(program: Program, recording: Recording) -> None:
    with recording.tracer.start_as_current_span("turn"):
        program.search("ann")
        program.answer()
        Context().run(program.search, "bob")
        assert program.answer() == (["memory:ann-0"], False)


@pytest.mark.parametrize("spanned", [False, True])
def test_answers_after_searches_of_several_owners_that_fit_equally_take_none(program: Program, spanned: bool) -> None:
    def serve() -> None:
        for owner in ("ann", "bob", "cy"):
            program.search(owner)
        assert [program.answer(spanned=spanned) for _ in range(3)] == [UNKNOWN] * 3

    Context().run(serve)


def test_words_tell_which_of_several_owners_an_answer_is_for(program: Program) -> None:
    def serve() -> None:
        program.search("ann", TEXT, "The user has a dog.")
        program.search("bob", TEXT, "The user has a cat.")
        assert program.answer(TEXT, "The user has a dog.") == (["memory:ann-0", "memory:ann-1"], False)
        assert program.answer(TEXT, "The user has a cat.") == (["memory:bob-0", "memory:bob-1"], False)

    Context().run(serve)


def test_owners_who_are_served_in_turn_read_their_own(program: Program) -> None:
    def serve() -> None:
        for owner in ("ann", "bob", "ann", "cy", "bob"):
            program.search(owner)
            assert program.answer() == ([f"memory:{owner}-0"], False)

    Context().run(serve)


def test_one_turn_may_search_several_owners(program: Program, recording: Recording) -> None:
    def serve() -> None:
        turn = recall.share_turn()
        program.search("ann")
        program.search("all")
        assert program.answer() == (["memory:all-0"], False)
        recall.unshare_turn(turn)

    Context().run(serve)
    with recording.tracer.start_as_current_span("turn"):
        program.search("ann")
        program.search("all")
        assert program.answer() == (["memory:all-0"], False)


def test_a_search_that_was_never_answered_stands_in_nobodys_way_for_long(
    program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    def serve() -> None:
        program.search("ann")
        program.search("bob")
        later = perf_counter() + 61
        for module in (recall, searches):
            monkeypatch.setattr(module, "perf_counter", lambda: later)
        program.search("cy")
        assert program.answer() == (["memory:cy-0"], False)

    Context().run(serve)


@pytest.mark.parametrize("elsewhere", ELSEWHERE.values(), ids=ELSEWHERE)
def test_that_nothing_was_found_for_one_owner_is_not_said_of_another(
    program: Program, elsewhere: Callable[[], Context]
) -> None:
    def serve() -> None:
        for _ in range(2):
            for owner in ("ann", "bob"):  # in turn
                program.search(owner, "")
                assert [program.answer() for _ in range(2)] == [([owner], False)] * 2
        elsewhere().run(program.search, "cy", "")
        assert program.answer() == UNKNOWN
        program.search("dee", "")
        assert program.answer() == (["dee"], False)
        program.search("eve", "")
        program.search("fay", "")
        assert [program.answer() for _ in range(2)] == [UNKNOWN] * 2

    Context().run(serve)


def test_a_search_that_the_program_itself_has_answered_is_no_rival(program: Program, recording: Recording) -> None:
    def serve() -> None:
        program.search("ann")
        with operation("answer", kind="respond", system="notes", scope="ann", tracer=recording.tracer) as own:
            own.read("memory:ann-0", role="context", content=TEXT)
        program.search("bob")
        assert program.answer() == (["memory:bob-0"], False)

    Context().run(serve)
