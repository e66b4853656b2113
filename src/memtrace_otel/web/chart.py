"""Counts over time as bars of an inline SVG, stacked by failure type."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from memtrace_otel.report.times import day_and_clock
from memtrace_otel.report.wording import ORDER, failure_class
from memtrace_otel.web.store import BARS

WIDTH, HEIGHT = 960, 120
_GAP = 2


@dataclass(frozen=True, slots=True)
class Piece:
    """The part of a bar that one failure type has, in units of the drawing."""

    type: str
    x: float
    y: float
    width: float
    height: float
    title: str


@dataclass(frozen=True, slots=True)
class Chart:
    """Bars from `first` to `last` (times in words); `most` is the count of the highest bar."""

    pieces: tuple[Piece, ...]
    first: str
    last: str
    most: int


def chart(first: int, length: int, rows: Iterable[Mapping[str, Any]]) -> Chart | None:
    """Return the chart of counts; times are ns. `rows` have the number of a `bar`, a failure type `name`, a `count`."""
    counts: defaultdict[int, defaultdict[str, int]] = defaultdict(lambda: defaultdict(int))
    for row in rows:
        counts[min(BARS - 1, int(row["bar"]))][failure_class(row["name"] or "")] += row["count"]
    if not counts:
        return None
    most = max(sum(bar.values()) for bar in counts.values())
    pieces: list[Piece] = []
    for number, bar in sorted(counts.items()):
        y = float(HEIGHT)
        told = ", ".join(f"{kind} {bar[kind]}" for kind in ORDER if bar.get(kind))
        title = f"from {day_and_clock(first + number * length)}: {told}"
        for kind in ORDER:
            if bar.get(kind):
                height = HEIGHT * bar[kind] / most
                y -= height
                pieces.append(Piece(kind, number * WIDTH / BARS, y, WIDTH / BARS - _GAP, height, title))
    return Chart(tuple(pieces), day_and_clock(first), day_and_clock(first + (max(counts) + 1) * length - 1), most)
