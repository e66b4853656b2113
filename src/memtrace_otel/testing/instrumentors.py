"""The contract of instrumentors.

    class TestMySystem(InstrumentorContract):
        instrumentor = MySystemInstrumentor

        @pytest.fixture
        def program(self, tmp_path): ...      # returns a factory: every call makes a fresh `Program`

A `Program` is a small application of the observed system on scripted models. Its methods are coroutine functions; those
of a synchronous system just call it. Where calls may come from several threads, add `ThreadedContract`; where answers
come in pieces, `StreamedContract`; where the system calls what the program gives it, `ReentrantContract`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from importlib.metadata import entry_points
from typing import cast

import pytest
from opentelemetry import trace
from opentelemetry.instrumentation.utils import suppress_instrumentation
from opentelemetry.sdk.trace import TracerProvider

from memtrace_otel import semconv, settings
from memtrace_otel.capture import current_operation, use_config, variable_ref
from memtrace_otel.graph import VersionKey, build_graph
from memtrace_otel.model import ref_kind
from memtrace_otel.semconv import RefKind
from memtrace_otel.testing.faults import FAULTS, Hits
from memtrace_otel.testing.harmless import HarmlessContract, Observed, own
from memtrace_otel.testing.programs import (
    SECRET,
    AsyncProgram,
    Factory,
    ReentrantFactory,
    Started,
    StreamFactory,
    failure,
    finished,
    play,
    recorded,
    reentered,
    streamed,
    wait_until,
)
from memtrace_otel.testing.spans import violations


class InstrumentorContract(HarmlessContract):
    """What every instrumentor promises. The subclass names its `instrumentor` and has a fixture `program`."""

    entry_point: str = ""
    """Name under `opentelemetry_instrumentor`, '' for an instrumentor that is not loaded by name."""
    remembers_answers: bool = False
    """A memory that holds the model's earlier answers comes from the questions they were given to."""
    cancellable: bool = True
    """Whether the system is asynchronous: then a program has `hang`."""

    # --- what is recorded ------------------------------------------------------------------------------------------
    def test_spans_keep_the_wire_contract(
        self, program: Factory, instrument: Callable[[], None], spans: Started
    ) -> None:
        instrument()
        asyncio.run(play(program))
        assert {f"{span.name}: {broken}" for span in spans.ours for broken in violations(span)} == set()
        kinds = {str((span.attributes or {})[semconv.OP_KIND]) for span in spans.ours}
        assert kinds & {"ingest", "create", "update"}, kinds
        assert self.reading[0] in kinds, kinds
        assert len(spans.started) == len(spans.ended)

    def test_what_is_found_has_its_writer_and_no_later_ancestor(
        self, program: Factory, instrument: Callable[[], None], spans: Started
    ) -> None:
        instrument()
        asyncio.run(play(program))
        graph = build_graph(recorded(spans))
        kind, role = self.reading
        reads = [read for span in graph.operations(kind=kind) for read in graph.inputs(span.origin)]
        found = {read.version for read in reads if read.role == role}
        assert found
        assert {version for version in found if version not in graph.outputs(version.origin)} == set()
        for version in found:
            written = graph.operation(version.origin)
            assert written is not None
            for ancestor in graph.ancestors(version):
                is_query = isinstance(ancestor, VersionKey) and ref_kind(ancestor.ref) == RefKind.QUERY
                assert self.remembers_answers or not is_query, ancestor
                made = graph.operation(ancestor.origin) if ancestor.origin else None
                assert made is None or made.start <= written.end, (ancestor, version)

    def test_contents_stay_inside(self, program: Factory, instrument: Callable[[], None], spans: Started) -> None:
        instrument()
        asyncio.run(play(program))
        assert spans.ours
        assert [span.name for span in spans.ours if SECRET in span.to_json()] == []

    def test_contents_are_shown_when_asked(
        self, program: Factory, instrument: Callable[[], None], spans: Started, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(settings.CAPTURE_CONTENT.env, "SPAN_ONLY")
        use_config(None)
        instrument()
        asyncio.run(play(program))
        assert any(SECRET in span.to_json() for span in spans.ours)

    # --- what the program sees -------------------------------------------------------------------------------------
    def test_results_are_the_same(self, program: Factory, instrument: Callable[[], None], spans: Started) -> None:
        untraced = asyncio.run(play(program))
        instrument()
        assert asyncio.run(play(program)) == untraced
        assert spans.ours

    def test_errors_pass_unchanged(self, program: Factory, instrument: Callable[[], None], spans: Started) -> None:
        untraced = asyncio.run(failure(program))
        instrument()
        traced = asyncio.run(failure(program))
        assert (type(traced), str(traced)) == (type(untraced), str(untraced))
        broken = [span for span in spans.ours if span.status.status_code is trace.StatusCode.ERROR]
        assert broken
        assert all((span.attributes or {}).get(semconv.ERROR_TYPE) for span in broken)
        assert len(spans.started) == len(spans.ended)

    # --- switching on and off --------------------------------------------------------------------------------------
    def test_two_instruments_record_once(
        self, program: Factory, instrument: Callable[[], None], spans: Started
    ) -> None:
        instrument()
        asyncio.run(play(program))
        once = sorted(span.name for span in spans.ours)
        spans.ended.clear()
        instrument()
        asyncio.run(play(program))
        assert sorted(span.name for span in spans.ours) == once

    def test_uninstrument_gives_the_originals_back(
        self, program: Factory, instrument: Callable[[], None], spans: Started
    ) -> None:
        instrument()
        asyncio.run(play(program))
        places = self.known_places()
        wrapped = {(repr(owner), name): own(owner, name) for owner, name in places}
        self.instrumentor().uninstrument()
        assert [place for place in places if own(*place) is wrapped[repr(place[0]), place[1]]] == []
        spans.ended.clear()
        asyncio.run(play(program))
        assert spans.ours == []

    def test_suppressed_instrumentation_records_nothing(
        self, program: Factory, instrument: Callable[[], None], spans: Started
    ) -> None:
        instrument()

        async def suppressed() -> None:
            with suppress_instrumentation():
                await play(program)

        asyncio.run(suppressed())
        assert spans.ours == []

    def test_it_is_loaded_by_its_name(self) -> None:
        if self.entry_point:
            (found,) = entry_points(group="opentelemetry_instrumentor", name=self.entry_point)
            assert found.load() is self.instrumentor

    # --- at the same time ------------------------------------------------------------------------------------------
    def test_tasks_at_the_same_time_keep_apart(
        self, program: Factory, instrument: Callable[[], None], spans: Started, provider: TracerProvider
    ) -> None:
        instrument()
        tracer = provider.get_tracer("application")

        async def turn() -> None:
            with tracer.start_as_current_span("turn"):
                await play(program, pause=lambda: asyncio.sleep(0))

        async def together(turns: int) -> None:
            await asyncio.gather(*(turn() for _ in range(turns)))

        asyncio.run(together(1))
        expected = len(spans.ours)
        spans.ended.clear()
        asyncio.run(together(4))
        assert_turns_are_apart(spans, turns=4, size=expected)

    def test_a_cancelled_call_ends_its_spans(
        self, program: Factory, instrument: Callable[[], None], spans: Started
    ) -> None:
        instrument()

        async def cancelled() -> None:
            application = program()
            try:
                assert self.cancellable == hasattr(application, "hang")
                if not self.cancellable:
                    return
                task = asyncio.ensure_future(cast(AsyncProgram, application).hang())
                await wait_until(lambda: bool(spans.started) or task.done())
                await asyncio.sleep(0.05)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
                assert current_operation() is None
            finally:
                await application.close()

        asyncio.run(cancelled())
        assert bool(spans.started) == self.cancellable
        assert len(spans.started) == len(spans.ended)


def assert_turns_are_apart(spans: Started, *, turns: int, size: int) -> None:
    """Each of so many turns, all of equal texts, has so many operations, and none read a variable of another turn."""
    operations = recorded(spans)
    traces = {span.trace_id for span in operations if span.name == "turn"}
    assert len(traces) == turns
    for trace_id in traces:
        mine = [span for span in operations if span.trace_id == trace_id and span.kind]
        read = [variable for span in mine for variable in span.inputs if variable.origin[:32] in traces - {trace_id}]
        assert len(mine) == size
        assert read == []


class StreamedContract(Observed):
    """For systems whose answers come in pieces.  a program has `stream`."""

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


class ReentrantContract(Observed):
    """For systems that call what the program gives them. A program has `reenter`."""

    nests: bool = True
    """Whether the search runs below the write: in its thread or task, and as an operation of its own."""

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
        for span, around in inside:
            assert (around.start_time or 0) <= (span.start_time or 0), (around.name, span.name)
            assert (span.end_time or 0) <= (around.end_time or 0), (around.name, span.name)
        searches = [span for span, _ in inside if (span.attributes or {})[semconv.OP_KIND] == self.reading[0]]
        assert bool(searches) or not self.nests

    @pytest.mark.parametrize("fault", FAULTS)
    def test_no_hook_of_ours_can_hurt_inside_a_call(
        self, program: ReentrantFactory, instrument: Callable[[], None], fault: str, broken: Callable[[str], Hits]
    ) -> None:
        untraced = finished(reentered(program))
        broken(fault)
        instrument()
        assert finished(reentered(program)) == untraced
