"""The order of a record's versions: replaced before replacing, time only where that leaves a choice."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from memtrace_otel.graph.keys import EdgeType, VersionKey

if TYPE_CHECKING:
    from memtrace_otel.graph.evolution import EvolutionGraph


def causal_order(
    graph: EvolutionGraph, versions: Iterable[VersionKey], time: Callable[[VersionKey], int]
) -> list[VersionKey]:
    """Sort versions topologically along `supersedes`; of bad data that goes round, the earliest in time comes first."""
    times = {version: (time(version), version) for version in versions}
    before: dict[VersionKey, set[VersionKey]] = {version: set() for version in times}
    after: dict[VersionKey, list[VersionKey]] = {version: [] for version in times}
    for version in times:
        for _, old, edge in graph.out_edges(version, data=True):
            if edge["type"] == EdgeType.SUPERSEDES and isinstance(old, VersionKey) and old in times:
                before[version].add(old)
                after[old].append(version)
    ready = [times[version] for version in times if not before[version]]
    heapq.heapify(ready)
    waiting = sorted(times.values(), reverse=True)
    ordered: list[VersionKey] = []
    done: set[VersionKey] = set()
    while len(ordered) < len(times):
        if ready:
            _, version = heapq.heappop(ready)
        else:
            _, version = waiting.pop()
        if version in done:
            continue
        done.add(version)
        ordered.append(version)
        for later in after[version]:
            before[later].discard(version)
            if not before[later]:
                heapq.heappush(ready, times[later])
    return ordered
