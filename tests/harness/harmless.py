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

_untraced: dict[type, tuple[object, str]] = {}


class HarmlessContract(Observed):
    """Every step and every function of an instrumentor fails. A program may have `explore` (`ExploringProgram`)."""

    outcomes: int = 1
    """Number of different results without the instrumentor: more where background work has no fixed order."""
    one_untraced_run: bool = False
    """One run without the instrumentor serves all faults: for slow programs, whose results name nothing of a run."""

    @pytest.fixture
    def untraced(self, program: Factory) -> tuple[object, str]:
        """The result and the error without the instrumentor."""
        known = _untraced.get(type(self)) or (finished(explored(program)), repr(finished(failure(program))))
        if self.one_untraced_run:
            _untraced[type(self)] = known
        return known

    @pytest.fixture
    def broken(self, provider: TracerProvider, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Hits]]:
        """A function that injects one of the faults into everything instrumented afterwards."""
        with ExitStack() as undo:
            yield lambda fault: inject(fault, monkeypatch, provider, undo)

    @pytest.mark.parametrize("fault", FAULTS)
    def test_a_fault_in_every_step_changes_no_result(
        self,
        untraced: tuple[object, str],
        program: Factory,
        instrument: Callable[[], None],
        fault: str,
        broken: Callable[[str], Hits],
    ) -> None:
        result, error = untraced
        hits = broken(fault)
        instrument()
        seen = finished(explored(program))
        assert repr(finished(failure(program))) == error
        hits.wait()
        self.assert_possible([seen], result, program)

    def test_a_fault_in_every_function_changes_no_result(
        self,
        untraced: tuple[object, str],
        program: Factory,
        instrument: Callable[[], None],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        """In each run every function raises at its first call; the next run breaks the functions that were not called,
        because the caller of such a function had raised."""
        result, error = untraced
        instrument()
        left, raised = list(functions_of(self.instrumentor.__module__)), {""}
        seen: list[object] = []
        while raised:
            with monkeypatch.context() as breaking:
                raised = break_each_once(left, breaking)
                seen.append(finished(explored(program)))
                assert repr(finished(failure(program))) == error, sorted(raised)
            left = [function for function in left if function[0] not in raised]
        self.assert_possible(seen, result, program)

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
