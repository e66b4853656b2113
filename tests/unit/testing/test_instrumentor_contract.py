"""The contract passes for a good instrumentor and fails for a careless one."""

from __future__ import annotations

from pathlib import Path

import pytest

from memtrace_otel.testing import InstrumentorContract, ThreadedContract
from tests.unit.testing.toy import ToyInstrumentor, ToyProgram


class TestToy(InstrumentorContract, ThreadedContract):
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
