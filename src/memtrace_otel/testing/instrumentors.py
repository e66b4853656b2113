"""The contract of instrumentors.

    class TestMySystem(InstrumentorContract):
        instrumentor = MySystemInstrumentor

        @pytest.fixture
        def program(self, tmp_path): ...      # returns a factory: every call makes a fresh `Program`

A `Program` is a small application of the observed system on scripted models. The methods of a program are coroutine
functions; for a synchronous system the coroutines only call the system. A subclass sets an impossible test to None.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from importlib.metadata import entry_points

import pytest
from opentelemetry import trace
from opentelemetry.instrumentation.utils import suppress_instrumentation
from opentelemetry.sdk.trace import TracerProvider

from memtrace_otel import semconv, settings
from memtrace_otel.capture import use_config
from memtrace_otel.testing.fixtures import own
from memtrace_otel.testing.lineage import LineageContract
from memtrace_otel.testing.programs import SECRET, Factory, Started, failure, play, recorded
from memtrace_otel.testing.spans import violations


class InstrumentorContract(LineageContract):
    """The promises of every instrumentor. The subclass names its `instrumentor` and has a fixture `program`."""

    entry_point: str = ""
    """Name in the group `opentelemetry_instrumentor`; '' without an entry point."""

    # --- spans -----------------------------------------------------------------------------------------------------
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

    def test_contents_are_off_by_default(
        self, program: Factory, instrument: Callable[[], None], spans: Started
    ) -> None:
        instrument()
        asyncio.run(play(program))
        assert spans.ours
        assert [span.name for span in spans.ours if SECRET in span.to_json()] == []

    def test_contents_are_recorded_when_captured(
        self, program: Factory, instrument: Callable[[], None], spans: Started, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv(settings.CAPTURE_CONTENT.env, "SPAN_ONLY")
        use_config(None)
        instrument()
        asyncio.run(play(program))
        assert any(SECRET in span.to_json() for span in spans.ours)

    # --- results and errors ---------------------------------------------------------------------------------------
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

    def test_uninstrument_restores_the_originals(
        self, program: Factory, instrument: Callable[[], None], spans: Started
    ) -> None:
        instrument()
        asyncio.run(play(program))
        places = self.places()
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

    def test_the_entry_point_loads_the_instrumentor(self) -> None:
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


def assert_turns_are_apart(spans: Started, *, turns: int, size: int) -> None:
    """There are `turns` traces of `size` operations each, and no operation reads a variable of another trace."""
    operations = recorded(spans)
    traces = {span.trace_id for span in operations if span.name == "turn"}
    assert len(traces) == turns
    for trace_id in traces:
        mine = [span for span in operations if span.trace_id == trace_id and span.kind]
        read = [variable for span in mine for variable in span.inputs if variable.origin[:32] in traces - {trace_id}]
        assert len(mine) == size
        assert read == []
