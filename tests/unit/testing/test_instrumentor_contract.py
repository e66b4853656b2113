"""The contract passes for a good instrumentor and fails for a careless one."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest

from memtrace_otel.capture import operation
from memtrace_otel.testing import InstrumentorContract, ReentrantContract, ThreadedContract
from memtrace_otel.testing.faults import inject
from tests.conftest import Recording
from tests.unit.testing.toy import ToyInstrumentor, ToyProgram


class TestToy(InstrumentorContract, ThreadedContract, ReentrantContract):
    instrumentor = ToyInstrumentor

    @pytest.fixture
    def program(self) -> type[ToyProgram]:
        return ToyProgram


def test_a_careless_instrumentor_is_caught(pytester: pytest.Pytester) -> None:
    pytester.syspathinsert(Path(__file__).parents[3])
    pytester.makepyfile("""
        import pytest
        from memtrace_otel.testing import InstrumentorContract
        from tests.unit.testing.toy import CarelessInstrumentor, ToyProgram

        class TestCareless(InstrumentorContract):
            instrumentor = CarelessInstrumentor

            @pytest.fixture
            def program(self):
                return ToyProgram
    """)
    result = pytester.runpytest("-p", "no:cacheprovider")
    failed = "\n".join(line for line in result.outlines if line.startswith("FAILED"))
    for test in ("wire_contract", "contents_stay_inside", "results_are_the_same", "writer_and_no_later_ancestor"):
        assert test in failed


def test_an_instrumentor_that_takes_equal_memories_for_one_is_caught(pytester: pytest.Pytester) -> None:
    pytester.syspathinsert(Path(__file__).parents[3])
    pytester.makepyfile("""
        import pytest
        from memtrace_otel.capture import scope_id
        from memtrace_otel.testing import InstrumentorContract, ThreadedContract
        from tests.unit.testing import toy

        class TestMixing(InstrumentorContract, ThreadedContract):
            instrumentor = toy.ToyInstrumentor

            @pytest.fixture
            def program(self, monkeypatch):
                monkeypatch.setattr(toy, "scope", lambda memory: scope_id("toy"))
                return toy.ToyProgram
    """)
    result = pytester.runpytest("-p", "no:cacheprovider", "-k", "keep_apart or writer")
    failed = sorted(line.split("::")[-1].split(" ")[0] for line in result.outlines if line.startswith("FAILED"))
    assert failed == ["test_tasks_at_the_same_time_keep_apart", "test_threads_keep_apart_and_lose_nothing"]


@pytest.mark.parametrize("in_parts", [True, False])
def test_a_function_that_nothing_guards_is_caught(pytester: pytest.Pytester, in_parts: bool) -> None:
    pytester.syspathinsert(Path(__file__).parents[3])
    pytester.makepyfile(f"""
        import pytest
        from memtrace_otel.testing import HarmlessContract
        from tests.unit.testing.toy import ToyProgram, UnguardedInstrumentor

        class TestUnguarded(HarmlessContract):
            instrumentor = UnguardedInstrumentor
            in_parts = {in_parts}
            passing = frozenset({{"UnguardedInstrumentor.patch.<locals>.unguarded"}})

            @pytest.fixture
            def program(self):
                return ToyProgram
    """)
    result = pytester.runpytest("-p", "no:cacheprovider", "-k", "no_part", "-vv")
    harmful = "\n".join(line for line in result.outlines if line.startswith("E  "))
    assert "toy:count" in harmful
    assert ("toy:note" in harmful) != in_parts  # in shared runs it is one of those that raised


def test_a_step_that_is_never_left_out_is_caught(pytester: pytest.Pytester) -> None:
    pytester.syspathinsert(Path(__file__).parents[3])
    pytester.makepyfile("""
        import pytest
        from memtrace_otel.instrumentation.slowness import Slowness
        from memtrace_otel.testing import HarmlessContract
        from tests.unit.testing.toy import ToyInstrumentor, ToyProgram

        class TestTireless(HarmlessContract):
            instrumentor = ToyInstrumentor

            @pytest.fixture
            def program(self, monkeypatch):
                monkeypatch.setattr(Slowness, "rests", lambda self: False)
                return ToyProgram
    """)
    result = pytester.runpytest("-p", "no:cacheprovider", "-k", "account_holds")
    result.assert_outcomes(failed=1)


def test_origins_that_raise_are_met_by_what_an_operation_reads(
    recording: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    with ExitStack() as undo:
        hits = inject("origins raise", monkeypatch, recording.provider, undo)
        with operation("search_memory", kind="retrieve", system="toy", tracer=recording.tracer) as search:
            search.read("memory:1", role="hit")
    assert hits.met["newest"] == 1


@pytest.mark.parametrize(("wraps_nothing", "caught"), [(False, 2), (True, 0)])
def test_an_instrumentor_that_does_not_tell_what_it_wraps_is_caught(
    pytester: pytest.Pytester, wraps_nothing: bool, caught: int
) -> None:
    pytester.syspathinsert(Path(__file__).parents[3])
    pytester.makepyfile(f"""
        import pytest
        from memtrace_otel.testing import InstrumentorContract
        from tests.unit.testing.toy import ToyProgram, UntoldInstrumentor

        class TestUntold(InstrumentorContract):
            instrumentor = UntoldInstrumentor
            wraps_nothing = {wraps_nothing}

            @pytest.fixture
            def program(self):
                return ToyProgram
    """)
    result = pytester.runpytest("-p", "no:cacheprovider", "-k", "wrapper or gives_the_originals")
    result.assert_outcomes(failed=caught, passed=2 - caught)
    told = [line for line in result.outlines if "nothing tells what UntoldInstrumentor wraps" in line]
    assert bool(told) == bool(caught)
