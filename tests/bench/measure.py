"""What every benchmark reports, and how times are taken so that other load on the machine cancels out."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

Work = Callable[[], object]


@dataclass(frozen=True, slots=True)
class Measure:
    """One row of the results. `ratio`, where there is one, is ours over the yardstick that `name` tells."""

    name: str
    ours: float
    peer: float | None
    unit: str
    ratio: float | None
    bar: float
    holds: bool


def at_most(
    name: str, ours: float, bar: float, unit: str, *, peer: float | None = None, ratio: float | None = None
) -> Measure:
    """A measure whose ratio, or else whose figure, may not exceed the bar."""
    return Measure(name, ours, peer, unit, ratio, bar, (ours if ratio is None else ratio) <= bar)


def at_least(name: str, ours: float, bar: float, unit: str, *, peer: float | None = None) -> Measure:
    """A measure whose figure may not fall short of the bar."""
    return Measure(name, ours, peer, unit, None, bar, ours >= bar)


def side_by_side(*works: Work, calls: int, rounds: int = 25) -> list[list[float]]:
    """Microseconds of CPU per call of each work, round by round: in every round all works run, one after the other."""
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


def ratio(ours: list[float], theirs: list[float]) -> float:
    """Median of the ratios of the rounds."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def progress(text: str) -> None:
    """Say on standard error what is being measured."""
    print(f"  {text}", file=sys.stderr, flush=True)
