"""All ways that information took from one node to another."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from memtrace_otel.graph.keys import NodeKey, OperationKey, VersionKey
from memtrace_otel.graph.walk import feeding, forward, reads

if TYPE_CHECKING:
    from memtrace_otel.graph.evolution import EvolutionGraph

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

    step: tuple[NodeKey, ...]
    rest: _Way | None
    length: int

    def nodes(self) -> Iterator[NodeKey]:
        """Yield its nodes, the target last."""
        way: _Way | None = self
        while way is not None:
            yield from reversed(way.step)
            way = way.rest


def paths_between(graph: EvolutionGraph, source: NodeKey, target: NodeKey, limit: int) -> Paths:
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


def _steps(graph: EvolutionGraph, source: NodeKey, target: NodeKey) -> dict[NodeKey, list[tuple[NodeKey, ...]]]:
    """Return the steps back from the target and from each node between it and the source."""
    between = forward(graph, source)
    steps: dict[NodeKey, list[tuple[NodeKey, ...]]] = {}
    waiting = [target]
    while waiting:
        node = waiting.pop()
        if node == source or node in steps:
            continue
        taken = (step[: step.index(source) + 1] if source in step else step for step in _before(graph, node, source))
        steps[node] = list(dict.fromkeys(step for step in taken if step[-1] == source or step[-1] in between))
        waiting.extend(step[-1] for step in steps[node])
    return steps


def _nearest(steps: Mapping[NodeKey, Sequence[tuple[NodeKey, ...]]], source: NodeKey) -> dict[NodeKey, int]:
    """Return how many nodes are still to come at least behind each node that a way from the source leads to."""
    after: defaultdict[NodeKey, list[tuple[NodeKey, int]]] = defaultdict(list)
    for node, back in steps.items():
        for step in back:
            after[step[-1]].append((node, len(step)))
    nearest: dict[NodeKey, int] = {}
    waiting = [(0, source)]
    while waiting:
        length, node = heappop(waiting)
        if node not in nearest:
            nearest[node] = length
            for other, more in after[node]:
                heappush(waiting, (length + more, other))
    return nearest


def _before(graph: EvolutionGraph, node: NodeKey, source: NodeKey) -> Iterator[tuple[NodeKey, ...]]:
    """Yield the steps back from a node: of an operation to what it read, of a version to what fed it.

    A step to a version goes by the producer, and by the operation around it where the producer has no inputs itself; it
    ends at an operation only when that is the source.
    """
    if isinstance(node, OperationKey):
        yield from sorted({(version,) for version in reads(graph, node)})
        return
    steps: set[tuple[NodeKey, ...]] = set()
    by: list[NodeKey] = []
    producer = graph.producer(node)
    for nearer in feeding(graph, node):
        if isinstance(nearer, VersionKey):
            steps.add((*by, nearer))
        else:
            by = [nearer] if nearer == producer else [*by, nearer]
            if nearer == source:
                steps.add(tuple(by))
    yield from sorted(steps)


def _sorted(found: set[tuple[NodeKey, ...]]) -> tuple[tuple[NodeKey, ...], ...]:
    return tuple(sorted(found, key=lambda path: (len(path), path)))
