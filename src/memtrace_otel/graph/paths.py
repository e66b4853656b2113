"""Paths of information from one node to another, shortest first (A* search back from the target)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from heapq import heappop, heappush

from memtrace_otel.graph.graph import GraphData
from memtrace_otel.graph.keys import NodeKey, OperationKey, VersionKey
from memtrace_otel.graph.walk import following, reach, sources_of

_Nodes = tuple[NodeKey, ...]
_Path = tuple[_Nodes, "_Path | None"]
"""The first step of a path to the target, and the rest: paths share their ends."""
MAX_STEPS = 100_000
"""Most steps taken for one question: the number of paths multiplies wherever two paths meet."""


@dataclass(frozen=True, slots=True)
class Paths:
    """Paths from source to target, both included, shortest first. `complete` is False when a bound ended the search."""

    found: tuple[_Nodes, ...]
    complete: bool


def paths_between(graph: GraphData, source: NodeKey, target: NodeKey, limit: int) -> Paths:
    """Return up to `limit` shortest paths without a repeated node. Equal graphs give equal paths."""
    if source not in graph or source == target:
        return Paths(((source,),) if source in graph else (), True)
    steps = _steps_back(graph, source, target)
    distance = _distances(steps, source)
    found: set[_Nodes] = set()
    # (least length of the whole path, distance of its first node from the source, number, nodes so far, path)
    start: _Path = ((target,), None)
    waiting = [(distance[target], distance[target], 0, 1, start)] if target in distance else []
    taken = 0
    while waiting:
        *_, length, path = heappop(waiting)
        nodes = _nodes(path)
        if nodes[0] == source:
            if len(found) == limit:
                return Paths(_sorted(found), False)
            found.add(nodes)
            continue
        passed = set(nodes)
        for step in steps[nodes[0]]:
            if step[0] in distance and passed.isdisjoint(step):
                taken += 1
                if taken > MAX_STEPS:
                    return Paths(_sorted(found), False)
                left, longer = distance[step[0]], length + len(step)
                heappush(waiting, (longer + left, left, taken, longer, (step, path)))  # pyright: ignore[reportArgumentType]
    return Paths(_sorted(found), True)


def _steps_back(graph: GraphData, source: NodeKey, target: NodeKey) -> dict[NodeKey, list[_Nodes]]:
    """Return the steps back from the target and from each node between target and source, in forward order.

    A step from a version goes through its producer, and through the operation around a producer without inputs. A step
    begins with an operation only where the operation is the source.
    """
    between = reach(source, lambda node: following(graph, node)) | {source}
    steps: dict[NodeKey, list[_Nodes]] = {}
    waiting = [target]
    while waiting:
        node = waiting.pop()
        if node == source or node in steps:
            continue
        found: set[_Nodes] = set()
        through: _Nodes = ()
        for place, before in enumerate(sources_of(graph, node)):
            if isinstance(before, OperationKey):
                through = (before,) if place == 0 else (before, *through)
            if isinstance(before, VersionKey) or before == source:
                found.add((before, *through) if isinstance(before, VersionKey) else through)
        steps[node] = sorted(step for step in found if step[0] in between)
        waiting.extend(step[0] for step in steps[node])
    return steps


def _distances(steps: Mapping[NodeKey, list[_Nodes]], source: NodeKey) -> dict[NodeKey, int]:
    """Return the least number of nodes before each node on a path from the source."""
    after: defaultdict[NodeKey, list[tuple[NodeKey, int]]] = defaultdict(list)
    for node, back in steps.items():
        for step in back:
            after[step[0]].append((node, len(step)))
    distance: dict[NodeKey, int] = {}
    waiting = [(0, source)]
    while waiting:
        length, node = heappop(waiting)
        if node not in distance:
            distance[node] = length
            for later, more in after[node]:
                heappush(waiting, (length + more, later))
    return distance


def _nodes(path: _Path | None) -> _Nodes:
    nodes: list[NodeKey] = []
    while path is not None:
        step, path = path
        nodes += step
    return tuple(nodes)


def _sorted(found: set[_Nodes]) -> tuple[_Nodes, ...]:
    return tuple(sorted(found, key=lambda path: (len(path), path)))
