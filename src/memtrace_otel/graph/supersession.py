"""Which version replaces which: named by the operation, else the one written before it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass

from memtrace_otel.graph.keys import VersionKey
from memtrace_otel.graph.outputs import changes
from memtrace_otel.graph.writes import Write


@dataclass(frozen=True, slots=True)
class Supersession:
    """`new` replaces `old`. `inferred` when time says so, not an input of role `previous`."""

    new: VersionKey
    old: VersionKey
    inferred: bool


def supersessions(
    timelines: Iterable[list[Write]],
    previous: Mapping[VersionKey, list[VersionKey]],
    exists: Callable[[VersionKey], bool],
    scopes: Mapping[str, str],
) -> Iterator[Supersession]:
    """Yield the supersessions of every record; `timelines` hold its writes in order.

    `previous` are the versions that a write names as replaced, `exists` tells whether a version is in the graph,
    `scopes` gives the scope of an operation.
    """
    for writes in timelines:
        replaces = {write.version: list(dict.fromkeys(previous.get(write.version, ()))) for write in writes}
        for new, olds in replaces.items():
            yield from (Supersession(new, old, False) for old in olds)
        evolving = [write for write in writes if write.evolves]
        place = {write.version: position for position, write in enumerate(evolving)}
        # Replacements named against time (skewed clocks): only then can one that is inferred close a circle.
        skewed = any(place.get(old, -1) >= place[new] for new in place for old in replaces[new])
        for position, write in enumerate(evolving):
            if replaces[write.version]:
                continue
            if position:
                old = evolving[position - 1].version
                if skewed and _leads_to(old, write.version, replaces):
                    continue
            else:
                old = VersionKey(write.version.ref, "", scopes[write.version.origin])
                if not changes(write.operation, write.output) or not exists(old):
                    continue
            replaces[write.version] = [old]
            yield Supersession(write.version, old, True)


def _leads_to(start: VersionKey, goal: VersionKey, replaces: Mapping[VersionKey, list[VersionKey]]) -> bool:
    seen: set[VersionKey] = set()
    waiting = [start]
    while waiting:
        version = waiting.pop()
        if version == goal:
            return True
        if version not in seen:
            seen.add(version)
            waiting.extend(replaces.get(version, ()))
    return False
