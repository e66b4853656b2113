"""Which span encloses which: parents, continuation parts, nearest operations, inherited scopes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Container, Iterator, Mapping


class Hierarchy:
    """The spans around each span, by origin. A span whose parents form a circle (bad data) has no parent.

    `parents` maps the origin of every span to the origin of its parent ('' for a root). `mains` maps the origin of a
    continuation part to the origin of its operation.
    """

    def __init__(self, parents: Mapping[str, str], mains: Mapping[str, str]) -> None:
        self.mains = dict(mains)
        self._spans = frozenset(parents)
        self._outer = {origin: self.main(parent) for origin, parent in parents.items() if parent}
        self._cut_circles()
        self._order: list[str] = []
        self._ranges: dict[str, tuple[int, int]] = {}
        """Origin -> (own place in `_order`, place of the last span inside)."""
        self._sort()

    def main(self, origin: str) -> str:
        """Return the origin of the operation that a span belongs to: that of its operation for a continuation part."""
        return self.mains.get(origin, origin)

    def has_span(self, origin: str) -> bool:
        """Return whether the span of an origin is known, operation or not."""
        return origin in self._spans

    def enclosing(self, origin: str) -> Iterator[str]:
        """Yield the origins of the spans around a span, innermost first."""
        while origin := self._outer.get(origin, ""):
            yield origin

    def encloses(self, outer: str, origin: str) -> bool:
        """Return whether `outer` is among the `enclosing` spans, in constant time."""
        place = self._ranges.get(origin, (-1, -1))[0]
        first, last = self._ranges.get(outer, (place, place))
        return first < place <= last

    def nearest(self, operations: Container[str]) -> dict[str, str]:
        """Return for every span the origin of the nearest operation around the span, '' without one."""
        found: dict[str, str] = {}
        for origin in self._order:
            outer = self._outer.get(origin, "")
            found[origin] = outer if outer in operations else found.get(outer, "")
        return found

    def inherited(self, own: Mapping[str, str]) -> dict[str, str]:
        """Return the value of every span: its own, else that of the nearest span around with a value, else ''."""
        found: dict[str, str] = {}
        for origin in self._order:
            found[origin] = own.get(origin) or found.get(self._outer.get(origin, ""), "")
        return found

    def _cut_circles(self) -> None:
        done: set[str] = set()
        for start in tuple(self._outer):
            way: dict[str, None] = {}
            origin = start
            while origin in self._outer and origin not in done and origin not in way:
                way[origin] = None
                origin = self._outer[origin]
            done.update(way)
            if origin in way:
                passed = list(way)
                for span in passed[passed.index(origin) :]:
                    del self._outer[span]

    def _sort(self) -> None:
        """Fill `_order` with every span after the spans around it, and `_ranges`."""
        inner: defaultdict[str, list[str]] = defaultdict(list)
        for origin, outer in self._outer.items():
            inner[outer].append(origin)
        waiting = [origin for origin in {**dict.fromkeys(self._spans), **inner} if origin not in self._outer]
        sizes: dict[str, int] = {}
        while waiting:
            origin = waiting.pop()
            self._order.append(origin)
            waiting += inner.get(origin, ())
        for origin in reversed(self._order):
            sizes[origin] = 1 + sum(sizes[span] for span in inner.get(origin, ()))
        for place, origin in enumerate(self._order):
            self._ranges[origin] = place, place + sizes[origin] - 1
