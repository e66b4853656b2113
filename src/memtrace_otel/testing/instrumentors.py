"""The contract of instrumentors.

    class TestMySystem(InstrumentorContract):
        instrumentor = MySystemInstrumentor

        @pytest.fixture
        def program(self, tmp_path): ...      # returns a factory: every call makes a fresh `Program`

A `Program` is a small application of the observed system on scripted models. Its methods are coroutine functions; those
of a synchronous system just call it. Where calls may come from several threads, add `ThreadedContract`; where answers
come in pieces, `StreamedContract`.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from typing import Any, Protocol, cast

import pytest
from opentelemetry import trace
from opentelemetry.instrumentation.instrumentor import (
    BaseInstrumentor,  # pyright: ignore[reportMissingTypeStubs]
)
from opentelemetry.instrumentation.utils import suppress_instrumentation
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor, TracerProvider

from memtrace_otel import semconv, settings
from memtrace_otel.capture import current_operation, origins, recall, use_config, variable_ref
from memtrace_otel.graph import VersionKey, build_graph
from memtrace_otel.model import OperationSpan, ref_kind
from memtrace_otel.otlp import decode_request
from memtrace_otel.semconv import OpKind, RefKind, Role
from memtrace_otel.testing.faults import FAULTS, inject
from memtrace_otel.testing.spans import violations

SECRET = "zanzibar"
"""A word of every text given to a program: with content capture off it is on no span."""
TEXTS = (f"My cat {SECRET} sleeps on the red sofa.", f"My dog {SECRET} likes the garden.")
QUERY = f"Where does the cat {SECRET} sleep?"


class Program(Protocol):
    """A deterministic application: two fresh programs return equal results (leave out ids, times and vectors)."""

    async def write(self, text: str) -> object:
        """Give the memory system a text to remember; return what an application would see."""
        ...

    async def read(self, query: str) -> object:
        """Search the memory; return what an application would see. After the two texts, at least one is found."""
        ...

    async def fail(self) -> object:
        """Make a wrapped call of the system raise an error of its own."""
        ...

    async def close(self) -> None:
        """Let go of what the program holds."""
        ...


class AsyncProgram(Program, Protocol):
    """A program whose system is asynchronous, so that its calls can be cancelled."""

    async def hang(self) -> object:
        """Make a wrapped call that waits (a model that does not answer) until it is cancelled."""
        ...


class StreamingProgram(Program, Protocol):
    """A program whose system answers piece by piece."""

    async def stream(self, query: str) -> list[object]:
        """Ask and read the whole stream; return its pieces of text."""
        ...


Factory = Callable[[], Program]
StreamFactory = Callable[[], StreamingProgram]


class Started(SpanProcessor):
    """Keeps what was started and what was ended."""

    def __init__(self) -> None:
        self.started: list[Span] = []
        self.ended: list[ReadableSpan] = []

    def on_start(self, span: Span, parent_context: object = None) -> None:
        self.started.append(span)

    def on_end(self, span: ReadableSpan) -> None:
        self.ended.append(span)

    @property
    def ours(self) -> list[ReadableSpan]:
        """The ended spans that carry memtrace attributes, by start."""
        spans = [span for span in self.ended if semconv.OP_KIND in (span.attributes or {})]
        return sorted(spans, key=lambda span: span.start_time or 0)


class InstrumentorContract:
    """What every instrumentor promises. The subclass names its `instrumentor` and has a fixture `program`."""

    instrumentor: type[BaseInstrumentor]
    entry_point: str = ""
    """Name under `opentelemetry_instrumentor`, '' for an instrumentor that is not loaded by name."""
    reading: tuple[str, str] = (OpKind.RETRIEVE, Role.HIT)
    """Kind of the operation that reads memory, and the role in which it reads records."""
    remembers_answers: bool = False
    """A memory that holds the model's earlier answers comes from the questions they were given to."""
    cancellable: bool = True
    """Whether the system is asynchronous: then a program has `hang`."""

    @pytest.fixture(autouse=True)
    def default_settings(self, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        """Content capture off unless a test asks for it; nothing remembered of another test."""
        monkeypatch.delenv(settings.CAPTURE_CONTENT.env, raising=False)
        use_config(None)
        origins().forget()
        recall.forget()
        yield
        use_config(None)

    @pytest.fixture
    def spans(self) -> Started:
        """What is recorded while `instrumented`."""
        return Started()

    @pytest.fixture
    def provider(self, spans: Started) -> TracerProvider:
        """The tracer provider of the application."""
        provider = TracerProvider()
        provider.add_span_processor(spans)
        return provider

    @pytest.fixture
    def instrument(self, provider: TracerProvider) -> Iterator[Callable[[], None]]:
        """Instruments when called; undone at the end of the test."""
        yield lambda: self.instrumentor().instrument(tracer_provider=provider, skip_dep_check=True)
        if self.instrumentor().is_instrumented_by_opentelemetry:
            self.instrumentor().uninstrument()

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

    @pytest.mark.parametrize("fault", FAULTS)
    def test_no_hook_of_ours_can_hurt(
        self, program: Factory, instrument: Callable[[], None], fault: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Every hook raises, hangs or returns garbage; results and errors stay what they are, and a hook that hangs
        does so once."""
        results, error = asyncio.run(play(program)), asyncio.run(failure(program))
        hits = inject(fault, monkeypatch)
        instrument()
        assert asyncio.run(play(program)) == results
        raised = asyncio.run(failure(program))
        assert (type(raised), str(raised)) == (type(error), str(error))
        assert hits, "the fault was never met"
        if fault == "hang":
            assert max(hits.values()) == 1, "a hook that hangs was asked again"

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
        patches: Any = getattr(self.instrumentor(), "patches", None)
        places: list[tuple[Any, str]] = patches.wrapped() if patches is not None else []
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
                await play(program)

        async def alone() -> int:
            await turn()
            return len(spans.ours)

        async def together() -> None:
            await asyncio.gather(*(turn() for _ in range(4)))

        expected = asyncio.run(alone())
        spans.ended.clear()
        asyncio.run(together())
        turns = [span for span in spans.ended if span.name == "turn"]
        for root in turns:
            assert root.context is not None
            mine = [span for span in spans.ours if span.context and span.context.trace_id == root.context.trace_id]
            assert len(mine) == expected

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


class StreamedContract:
    """For systems whose answers come in pieces. Uses the fixtures of `InstrumentorContract`; a program has `stream`."""

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


class ThreadedContract:
    """For systems that are called from several threads. Uses the fixtures of `InstrumentorContract`."""

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

        def turn() -> None:
            try:
                with tracer.start_as_current_span("turn"):
                    asyncio.run(play(program))
            except BaseException as error:
                errors.append(error)

        workers = [threading.Thread(target=turn) for _ in range(self.threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        assert errors == []
        traces = {span.context.trace_id for span in spans.ended if span.name == "turn" and span.context}
        counts = {id: sum(1 for span in spans.ours if span.context and span.context.trace_id == id) for id in traces}
        assert counts == dict.fromkeys(traces, expected)
        assert len(traces) == self.threads


async def play(program: Factory) -> list[object]:
    """A whole run of a fresh program: two texts written, one question asked; what the application saw."""
    application = program()
    try:
        seen = [await application.write(text) for text in TEXTS]
        return [*seen, await application.read(QUERY)]
    finally:
        await application.close()


async def streamed(program: StreamFactory) -> list[object]:
    """The pieces of one streamed answer of a fresh program."""
    application = program()
    try:
        return await application.stream(QUERY)
    finally:
        await application.close()


async def failure(program: Factory) -> BaseException:
    """The error that a fresh program's failing call raises."""
    application = program()
    try:
        await application.fail()
    except Exception as error:
        return error
    finally:
        await application.close()
    raise AssertionError("the failing call of the program did not raise")


def own(owner: Any, name: str) -> object:
    """The attribute in the namespace of a class or module itself."""
    return cast(dict[str, object], vars(owner)).get(name)


async def wait_until(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """Poll `condition`."""
    for _ in range(int(seconds / 0.01)):
        if condition():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("waited in vain")


def recorded(spans: Started) -> list[OperationSpan]:
    """The recorded spans as they look behind the wire."""
    from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans

    return decode_request(encode_spans(spans.ended).SerializeToString())
