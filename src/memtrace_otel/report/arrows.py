"""Arrows between boxes of a grid: straight where they can be, else with rounded corners through the gaps."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise

from memtrace_otel.report.grid import Cell

RADIUS = 8.0
SPREAD = 16.0
"""Distance between arrows that end on the same side of a box."""
HEAD = 2.0
"""The arrow head ends this much before the box."""


@dataclass(frozen=True, slots=True)
class Box:
    """A rectangle; (x, y) is its upper left corner."""

    x: float
    y: float
    width: float
    height: float

    @property
    def right(self) -> float:
        """x of the right side."""
        return self.x + self.width

    @property
    def bottom(self) -> float:
        """y of the lower side."""
        return self.y + self.height

    @property
    def middle(self) -> float:
        """x of the centre."""
        return self.x + self.width / 2


@dataclass(frozen=True, slots=True)
class Arrow:
    """An SVG path and the point where its label goes."""

    path: str
    x: float
    y: float


def arrow(source: Box, target: Box, here: Cell, there: Cell, *, blocked: bool, order: int = 0, of: int = 1) -> Arrow:
    """Return the arrow from `source` in cell `here` to `target` in cell `there`, number `order` of those there.

    `blocked` tells that a box lies under the target, between it and the row of the source.
    """
    shift = (order - (of - 1) / 2) * SPREAD
    if here.row == there.row:
        y = max(source.y, target.y) + min(source.height, target.height) / 2
        return _path([(source.right, y), (target.x - HEAD, y)])
    if here.row < there.row:
        if here.column == there.column:
            return _path([(source.middle, source.bottom), (source.middle, target.y - HEAD)])
        x = target.middle + shift
        lane = target.y - SPREAD
        return _path([(source.middle, source.bottom), (source.middle, lane), (x, lane), (x, target.y - HEAD)])
    y = source.y + min(source.height / 2, 34.0)
    if not blocked and there.column > here.column:
        x = target.middle + shift
        return _path([(source.right, y), (x, y), (x, target.bottom + HEAD)])
    gutter = target.x - 20.0
    end = target.bottom - min(16.0, target.height / 3)
    return _path([(source.right, y), (gutter, y), (gutter, end), (target.x - HEAD, end)])


def _path(points: list[tuple[float, float]]) -> Arrow:
    """Join points by straight lines with rounded corners; the label goes over the middle of the first level stretch."""
    parts = [f"M{points[0][0]:.1f} {points[0][1]:.1f}"]
    for before, corner, after in zip(points, points[1:], points[2:], strict=False):
        enter, leave = _towards(corner, before), _towards(corner, after)
        parts.append(f"L{enter[0]:.1f} {enter[1]:.1f}Q{corner[0]:.1f} {corner[1]:.1f} {leave[0]:.1f} {leave[1]:.1f}")
    parts.append(f"L{points[-1][0]:.1f} {points[-1][1]:.1f}")
    level = next(((a, b) for a, b in pairwise(points) if a[1] == b[1]), (points[0], points[-1]))
    return Arrow("".join(parts), (level[0][0] + level[1][0]) / 2, level[0][1])


def _towards(corner: tuple[float, float], other: tuple[float, float]) -> tuple[float, float]:
    """The point at most one radius away from the corner, on the way to the other point."""
    dx, dy = other[0] - corner[0], other[1] - corner[1]
    length = abs(dx) + abs(dy)
    share = min(RADIUS, length / 2) / length if length else 0.0
    return corner[0] + dx * share, corner[1] + dy * share
