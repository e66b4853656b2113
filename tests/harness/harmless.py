"""Fault injection: the observed program sees the same results and errors when the instrumentor fails."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from opentelemetry.sdk.trace import TracerProvider

from memtrace_otel import testing
from memtrace_otel.testing.fixtures import Observed
from memtrace_otel.testing.programs import Factory, failure
from tests.harness.faults import FAULTS, Hits, break_each_once, functions_of, inject
from tests.harness.programs import explored, finished


class HarmlessContract(Observed):
    """Every step and every function of an instrumentor fails. A program may have `explore` (`ExploringProgram`)."""

    outcomes: int = 1
    """Number of different results without the instrumentor: more where background work has no fixed order."""

    @pytest.fixture
    def broken(self, provider: TracerProvider, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Hits]]:
        """A function that injects one of the faults into everything instrumented afterwards."""
        with ExitStack() as undo:
            yield lambda fault: inject(fault, monkeypatch, provider, undo)

    @pytest.mark.parametrize("fault", FAULTS)
    def test_a_fault_in_every_step_changes_no_result(
        self, program: Factory, instrument: Callable[[], None], fault: str, broken: Callable[[str], Hits]
    ) -> None:
        untraced, error = finished(explored(program)), finished(failure(program))
        hits = broken(fault)
        instrument()
        seen = finished(explored(program))
        raised = finished(failure(program))
        assert (type(raised), str(raised)) == (type(error), str(error))
        hits.wait()
        self.assert_possible([seen], untraced, program)

    def test_a_fault_in_every_function_changes_no_result(
        self, program: Factory, instrument: Callable[[], None], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """In each run every function raises at its first call; the next run breaks the functions that were not called,
        because the caller of such a function had raised."""
        untraced, error = finished(explored(program)), repr(finished(failure(program)))
        instrument()
        left, raised = list(functions_of(self.instrumentor.__module__)), {""}
        seen: list[object] = []
        while raised:
            with monkeypatch.context() as breaking:
                raised = break_each_once(left, breaking)
                seen.append(finished(explored(program)))
                assert repr(finished(failure(program))) == error, sorted(raised)
            left = [function for function in left if function[0] not in raised]
        self.assert_possible(seen, untraced, program)

    def assert_possible(self, seen: list[object], untraced: object, program: Factory) -> None:
        """Every result is that of a run without the instrumentor; further runs follow only after a difference."""
        different = [result for result in seen if result != untraced]
        if different and self.outcomes > 1:
            self.instrumentor().uninstrument()
            others = [finished(explored(program)) for _ in range(1, self.outcomes)]
            different = [result for result in different if result not in others]
        assert [(result, untraced) for result in different] == []


class InstrumentorContract(testing.InstrumentorContract, HarmlessContract):
    """The public contract with fault injection."""
