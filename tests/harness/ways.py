"""Contracts for the ways of calling a memory system: sync, cancelled, streamed, threaded, reentrant."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

import pytest
from opentelemetry.sdk.trace import TracerProvider

from memtrace_otel import semconv
from memtrace_otel.capture import current_operation, variable_ref
from memtrace_otel.semconv import RefKind
from memtrace_otel.testing.fixtures import Observed
from memtrace_otel.testing.instrumentors import assert_turns_are_apart
from memtrace_otel.testing.programs import Factory, Started, play
from memtrace_otel.testing.spans import violations
from tests.harness.programs import (
    AsyncFactory,
    ReentrantFactory,
    StreamFactory,
    at_once,
    finished,
    reentered,
    streamed,
    wait_until,
)


class SynchronousContract(Observed):
    """For systems whose calls need no event loop."""

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


class CancelledContract(Observed):
    """For asynchronous systems. A program has `hang`."""

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


class StreamedContract(Observed):
    """For systems that stream answers. A program has `stream`."""

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


class ThreadedContract(Observed):
    """For systems that several threads call."""

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


class ReentrantContract(Observed):
    """For systems that call back into the program. A program has `reenter`."""

    nests: bool = True
    """Whether the search inside the write is an operation below the operation of the write."""
    goes_on: bool = False
    """Whether the system works on in the background below an operation that has returned."""

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
