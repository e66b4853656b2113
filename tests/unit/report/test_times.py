"""Times as people read them."""

from __future__ import annotations

import pytest

from memtrace_otel.report import times
from tests.unit.report.stories import DAY, FIRST_DAY, SECOND


def test_a_time_in_words_and_for_machines() -> None:
    assert times.day(FIRST_DAY) == "Tue 3 Mar 2026"
    assert times.clock(FIRST_DAY) == "09:00:00"
    assert times.day_and_clock(FIRST_DAY) == "3 Mar 2026, 09:00:00 UTC"
    assert times.machine(FIRST_DAY) == "2026-03-03T09:00:00Z"


@pytest.mark.parametrize("time", [0, -5, 2**63 * 1000])
def test_a_time_that_no_calendar_knows_is_unknown(time: int) -> None:
    assert times.day(time) == times.clock(time) == times.machine(time) == ""
    assert times.day_and_clock(time) == "time unknown"


@pytest.mark.parametrize(
    ("passed", "words"),
    [
        (0, ""),
        (SECOND // 2, ""),
        (4 * SECOND, "4 s"),
        (61 * SECOND, "1 min"),
        (DAY // 24 * 5, "5 h"),
        (DAY, "1 day"),
        (18 * DAY, "18 days"),
        (45 * DAY, "2 months"),
        (800 * DAY, "2 years"),
        (-DAY, ""),
    ],
)
def test_a_distance_in_its_largest_unit(passed: int, words: str) -> None:
    assert times.distance(FIRST_DAY, FIRST_DAY + passed) == words
