"""Paths of information from one node to another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from heapq import heappop, heappush

from memtrace_otel.graph.graph import GraphData
from memtrace_otel.graph.keys import NodeKey, OperationKey, VersionKey
from memtrace_otel.graph.walk import following, reach, sources_of

_Step = tuple[NodeKey, ...]
MAX_STEPS = 100_000
"""Most steps taken for one question: ways multiply wherever two meet."""


@dataclass(frozen=True, slots=True)
class Paths:
    """Ways from source to target, both included, shortest first. `complete` is false when a bound ended the search."""

    found: tuple[tuple[NodeKey, ...], ...]
    complete: bool


@dataclass(frozen=True, slots=True)
class _Way:
    """A way back from the target: its last step, what was before it, and the number of its nodes."""

    step: _Step
    rest: _Way | None
    length: int

    def nodes(self) -> Iterator[NodeKey]:
        """Yield its nodes, the target last."""
        way: _Way | None = self
        while way is not None:
            yield from reversed(way.step)
            way = way.rest


def paths_between(graph: GraphData, source: NodeKey, target: NodeKey, limit: int) -> Paths:
    """Return up to `limit` ways without a repeated node, the shortest; of equally long ones the same every time."""
    if source not in graph or source == target:
        return Paths(((source,),) if source in graph else (), True)
    steps = _steps(graph, source, target)
    nearest = _nearest(steps, source)
    found: set[tuple[NodeKey, ...]] = set()
    # Ways by their least length, and of equal ones that first which is nearest to the source.
    waiting = [(nearest[target], nearest[target], 0, _Way((target,), None, 1))] if target in nearest else []
    taken = 0
    while waiting:
        *_, way = heappop(waiting)
        if (node := way.step[-1]) == source:
            if len(found) == limit:
                return Paths(_sorted(found), False)
            found.add(tuple(way.nodes()))
            continue
        passed = set(way.nodes())
        for step in steps[node]:
            if step[-1] not in nearest or not passed.isdisjoint(step):
                continue
            taken += 1
            if taken > MAX_STEPS:
                return Paths(_sorted(found), False)
            longer = _Way(step, way, way.length + len(step))
            heappush(waiting, (longer.length + nearest[step[-1]], nearest[step[-1]], taken, longer))
    return Paths(_sorted(found), True)


def _steps(graph: GraphData, source: NodeKey, target: NodeKey) -> dict[NodeKey, list[_Step]]:
    """Return the steps back from the target and from each node between it and the source; nodes that the same was
    before share them."""
    between = reach(source, lambda node: following(graph, node))
    steps: dict[NodeKey, list[_Step]] = {}
    shared: dict[_Step, list[_Step]] = {}
    waiting = [target]
    while waiting:
        node = waiting.pop()
        if node == source or node in steps:
            continue
        before = tuple(sources_of(graph, node))
        if before not in shared:
            back = {(version,) for version in before} if isinstance(node, OperationKey) else _by(before, source)
            taken = (step[: step.index(source) + 1] if source in step else step for step in sorted(back))
            shared[before] = [step for step in dict.fromkeys(taken) if step[-1] == source or step[-1] in between]
            waiting.extend(step[-1] for step in shared[before])
        steps[node] = shared[before]
    return steps


def _nearest(steps: Mapping[NodeKey, list[_Step]], source: NodeKey) -> dict[NodeKey, int]:
    """Return how many nodes are still to come at least behind each node that a way from the source leads to."""
    sharing: defaultdict[int, list[NodeKey]] = defaultdict(list)
    after: defaultdict[NodeKey, list[tuple[int, int]]] = defaultdict(list)
    for node, back in steps.items():
        if id(back) not in sharing:
            for step in back:
                after[step[-1]].append((id(back), len(step)))
        sharing[id(back)].append(node)
    nearest: dict[NodeKey, int] = {}
    least: dict[int, int] = {}
    waiting = [(0, source)]
    while waiting:
        length, node = heappop(waiting)
        if node in nearest:
            continue
        nearest[node] = length
        for group, more in after[node]:
            if length + more < least.get(group, length + more + 1):
                least[group] = length + more
                for other in sharing[group]:
                    heappush(waiting, (length + more, other))
    return nearest


def _by(before: _Step, source: NodeKey) -> set[_Step]:
    """Return the steps back from a version. Each goes by the producer, and by the operation around it where the
    producer has no inputs itself; it ends at an operation only when that is the source."""
    steps: set[_Step] = set()
    by: list[NodeKey] = []
    for nearer in before:
        if isinstance(nearer, VersionKey):
            steps.add((*by, nearer))
        else:
            by = [nearer] if nearer == before[0] else [*by, nearer]
            if nearer == source:
                steps.add(tuple(by))
    return steps


def _sorted(found: set[tuple[NodeKey, ...]]) -> tuple[tuple[NodeKey, ...], ...]:
    return tuple(sorted(found, key=lambda path: (len(path), path)))
