"""All ways that information took from one node to another."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
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


def paths_between(graph: EvolutionGraph, source: NodeKey, target: NodeKey, limit: int) -> Paths:
    """Return up to `limit` ways without a repeated node; of more than that the same ones every time."""
    if source not in graph or source == target:
        return Paths(((source,),) if source in graph else (), True)
    behind = forward(graph, source) | {source}
    found: set[tuple[NodeKey, ...]] = set()
    path: list[tuple[NodeKey, ...]] = [(target,)]
    waiting = [_before(graph, target, source)]
    steps = 0
    while waiting:
        step = next(waiting[-1], None)
        if step is None:
            waiting.pop()
            path.pop()
            continue
        if source in step:
            step = step[: step.index(source) + 1]
        elif step[-1] not in behind or any(not set(step).isdisjoint(passed) for passed in path):
            continue
        steps += 1
        if steps > MAX_STEPS or (step[-1] == source and len(found) == limit):
            return Paths(_sorted(found), False)
        if step[-1] == source:
            found.add(tuple(node for nodes in (*path, step) for node in nodes)[::-1])
        else:
            path.append(step)
            waiting.append(_before(graph, step[-1], source))
    return Paths(_sorted(found), True)


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
