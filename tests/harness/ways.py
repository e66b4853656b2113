"""The ways of using a memory system, a contract for each: no program goes all of them.

An instrumentor's classes of tests go every one (`InstrumentorContract.test_no_way_of_using_it_is_left_out`).
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest
from opentelemetry.sdk.trace import TracerProvider

from memtrace_otel import semconv
from memtrace_otel.capture import current_operation, variable_ref
from memtrace_otel.semconv import RefKind
from memtrace_otel.testing.instrumentors import assert_turns_are_apart
from memtrace_otel.testing.programs import (
    AsyncFactory,
    Factory,
    ReentrantFactory,
    Started,
    StreamFactory,
    at_once,
    finished,
    play,
    reentered,
    streamed,
    wait_until,
)
from memtrace_otel.testing.spans import violations
from tests.harness.faults import FAULTS, Hits
from tests.harness.harmless import Breakable


class SynchronousContract(Breakable):
    """For systems that are called without an event loop."""

    def test_calls_without_an_event_loop_are_recorded_the_same(
        self, program: Factory, instrument: Callable[[], None], spans: Started
    ) -> None:
        untraced = at_once(play(program))
        instrument()
        assert at_once(play(program)) == untraced
        alone = sorted(span.name for span in spans.ours)
        spans.ended.clear()
        asyncio.run(play(program))
        assert alone == sorted(span.name for span in spans.ours) != []


class CancelledContract(Breakable):
    """For asynchronous systems, whose calls can be cancelled. A program has `hang`."""

    def test_a_cancelled_call_ends_its_spans(
        self, program: AsyncFactory, instrument: Callable[[], None], spans: Started
    ) -> None:
        instrument()

        async def cancelled() -> None:
            application = program()
            try:
                task = asyncio.ensure_future(application.hang())
                await wait_until(lambda: bool(spans.started) or task.done())
                await asyncio.sleep(0.05)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert current_operation() is None
            finally:
                await application.close()

        asyncio.run(cancelled())
        assert spans.started
        assert len(spans.started) == len(spans.ended)


class StreamedContract(Breakable):
    """For systems whose answers come in pieces. A program has `stream`."""

    def test_a_stream_is_the_same_and_recorded_whole(
        self, program: StreamFactory, instrument: Callable[[], None], spans: Started
    ) -> None:
        untraced = asyncio.run(streamed(program))
        instrument()
        assert asyncio.run(streamed(program)) == untraced
        text = "".join(map(str, untraced))
        digests = [digest for span in spans.ours for digest in (span.attributes or {}).get(semconv.OUTPUTS_DIGESTS, ())]  # pyright: ignore
        assert variable_ref(RefKind.ANSWER, text).partition(":")[2] in digests
        assert len(spans.started) == len(spans.ended)


class ThreadedContract(Breakable):
    """For systems that are called from several threads."""

    threads = 4

    def test_threads_keep_apart_and_lose_nothing(
        self, program: Factory, instrument: Callable[[], None], spans: Started, provider: TracerProvider
    ) -> None:
        instrument()
        tracer = provider.get_tracer("application")
        asyncio.run(play(program))
        expected = len(spans.ours)
        spans.ended.clear()
        errors: list[BaseException] = []

        together = threading.Barrier(self.threads)

        async def take_turns() -> None:
            together.wait(300)  # a slow system on a busy machine

        def turn() -> None:
            try:
                with tracer.start_as_current_span("turn"):
                    asyncio.run(play(program, pause=take_turns))
            except BaseException as error:
                together.abort()
                errors.append(error)

        workers = [threading.Thread(target=turn) for _ in range(self.threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert errors == []
        assert_turns_are_apart(spans, turns=self.threads, size=expected)


class ReentrantContract(Breakable):
    """For systems that call what the program gives them. A program has `reenter`."""

    nests: bool = True
    """Whether the search runs below the write: in its thread or task, and as an operation of its own."""
    goes_on: bool = False
    """Whether the system works on below an operation that has returned, in the background."""

    def test_a_call_from_inside_a_call_is_below_it(
        self, program: ReentrantFactory, instrument: Callable[[], None], spans: Started
    ) -> None:
        untraced = finished(reentered(program))
        instrument()
        assert finished(reentered(program)) == untraced
        assert len(spans.started) == len(spans.ended)
        assert {f"{span.name}: {broken}" for span in spans.ours for broken in violations(span)} == set()
        known = {span.context.span_id: span for span in spans.ours if span.context}
        inside = [
            (span, known[span.parent.span_id])
            for span in spans.ours
            if span.parent is not None and span.parent.span_id in known
        ]
        searches = [span for span, _ in inside if (span.attributes or {})[semconv.OP_KIND] == self.reading[0]]
        for span, around in inside:
            assert (around.start_time or 0) <= (span.start_time or 0), (around.name, span.name)
            if not self.goes_on or span in searches:
                assert (span.end_time or 0) <= (around.end_time or 0), (around.name, span.name)
        assert bool(searches) or not self.nests

    @pytest.mark.parametrize("fault", FAULTS)
    def test_no_hook_of_ours_can_hurt_inside_a_call(
        self, program: ReentrantFactory, instrument: Callable[[], None], fault: str, broken: Callable[[str], Hits]
    ) -> None:
        untraced = finished(reentered(program))
        broken(fault)
        instrument()
        assert finished(reentered(program)) == untraced


WAYS: tuple[type[Breakable], ...] = (
    SynchronousContract,
    CancelledContract,
    ThreadedContract,
    StreamedContract,
    ReentrantContract,
)
"""What every instrumentor is put to, by one of its classes of tests or another."""
