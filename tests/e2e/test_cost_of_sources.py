"""What a case costs in a real Tempo does not grow with the store. `make measure-sources` has a thousand cases."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.backends.tempo import running_tempo
from tests.e2e.measure_sources import FLAT, compare


@pytest.mark.timed
def test_a_case_costs_the_same_in_a_larger_store(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Time is printed, not judged: another process on the machine would decide."""
    with running_tempo(tmp_path) as tempo, capsys.disabled():
        print()
        _, small, large = compare(tempo, cases=40, larger=4)
    assert large.requests <= FLAT * small.requests
    assert large.bytes <= FLAT * small.bytes
