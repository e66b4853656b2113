"""A row of the benchmark: ours against a yardstick of the same run, as one ratio with a bar."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

Work = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Measure:
    """One row: `ratio` is `ours` over `yardstick`, which have one unit, and `bar` bounds the ratio."""

    name: str
    ours: float
    yardstick: float
    unit: str
    ratio: float
    bar: str
    holds: bool


def at_most(name: str, ours: float, yardstick: float, bar: float, unit: str, *, ratio: float | None = None) -> Measure:
    """Return a row whose ratio may not exceed the bar; `ratio` replaces `ours / yardstick` (a median of rounds)."""
    ratio = ours / yardstick if ratio is None else ratio
    return Measure(name, ours, yardstick, unit, ratio, f"at most {bar:g}", ratio <= bar)


def at_least(name: str, ours: float, yardstick: float, bar: float, unit: str) -> Measure:
    """Return a row whose ratio may not fall short of the bar."""
    ratio = ours / yardstick
    return Measure(name, ours, yardstick, unit, ratio, f"at least {bar:g}", ratio >= bar)


def side_by_side(*works: Work, calls: int, rounds: int = 25) -> list[list[float]]:
    """Return microseconds of CPU per call of each work, round by round; every round runs all works in turn."""
    for work in works:
        work()
    taken: list[list[float]] = [[] for _ in works]
    for _ in range(rounds):
        for times, work in zip(taken, works, strict=True):
            started = time.thread_time()
            for _ in range(calls):
                work()
            times.append((time.thread_time() - started) / calls * 1e6)
    return taken


def median_ratio(ours: list[float], theirs: list[float]) -> float:
    """Return the median of the ratios of the rounds: other load on the machine cancels out."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def percentile(times: list[float], percent: int) -> float:
    """Return the value below which `percent` percent of the times lie."""
    return sorted(times)[min(len(times) - 1, len(times) * percent // 100)]


def progress(text: str) -> None:
    """Say on standard error what is being measured."""
    print(f"  {text}", file=sys.stderr, flush=True)
