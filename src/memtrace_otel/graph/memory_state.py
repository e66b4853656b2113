"""The records that a memory held at a time, and the changes between two times."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from memtrace_otel.graph.graph import GraphData
from memtrace_otel.graph.keys import RECORD_KINDS, EdgeType, OperationKey, VersionKey
from memtrace_otel.model import ref_kind


class ChangeKind(StrEnum):
    """The kind of change of a record between two times."""

    LEARNT = "learnt"
    CHANGED = "changed"
    FORGOTTEN = "forgotten"


@dataclass(frozen=True, slots=True)
class Change:
    """One record that differs between two times, and the operation that changed the record.

    `before` is None for a learnt record. `after` is the new version; for a forgotten record the tombstone, or the
    replacement in another scope. Of equal versions in a row, the first counts. `operation` is None when no span
    recorded the write.
    """

    kind: ChangeKind
    ref: str
    before: VersionKey | None
    after: VersionKey
    operation: OperationKey | None


def state_at(graph: GraphData, scope: str, time: int | None = None) -> list[VersionKey]:
    """Return the version of every record that the scope held at `time` (ns since the epoch, None: at the end).

    Ordered by ref. A record is held from its first write, or without a recorded write from its first read.
    """
    latest = (life[-1] for life in _lives(graph, scope, time).values())
    return [version for version in latest if _is_held(graph, scope, version)]


def changes_between(graph: GraphData, scope: str, since: int, until: int | None = None) -> list[Change]:
    """Return the records of the scope that differ between two times, in time order of the changes.

    A record that was created and deleted in between is no change. A write of equal content is no change. Raises
    ValueError when `since` is later than `until`.
    """
    if until is not None and since > until:
        raise ValueError("since is later than until")
    before, lives = _lives(graph, scope, since), _lives(graph, scope, until)
    found = (
        _change(
            graph,
            scope,
            ref,
            before[ref][-1] if ref in before else None,
            _first_final(graph, scope, life, since),
        )
        for ref, life in lives.items()
    )
    return sorted((c for c in found if c is not None), key=lambda change: (graph.time_of(change.after), change.ref))


def _lives(graph: GraphData, scope: str, time: int | None) -> dict[str, list[VersionKey]]:
    """Return the versions of every record until `time`, with tombstones and replacements by other scopes."""
    lives: dict[str, list[VersionKey]] = {}
    for ref in graph.refs():
        if ref_kind(ref) in RECORD_KINDS:
            until = [v for v in graph.history(ref) if time is None or graph.time_of(v) <= time]
            life: list[VersionKey] = []
            for version in until:  # replaced before replacing
                if (
                    not scope
                    or graph.scope_of_version(version) == scope
                    or (life and _replaces(graph, version, life[-1]))
                ):
                    life.append(version)
            if life:
                lives[ref] = life
    return lives


def _first_final(graph: GraphData, scope: str, life: list[VersionKey], since: int) -> VersionKey:
    """Return the first version after `since` with the final state of a record. Later equal writes and deletions change
    nothing."""
    first = life[-1]
    for earlier in reversed(life[:-1]):
        if graph.time_of(earlier) <= since or not _are_the_same(graph, scope, earlier, first):
            break
        first = earlier
    return first


def _are_the_same(graph: GraphData, scope: str, one: VersionKey, other: VersionKey) -> bool:
    held = _is_held(graph, scope, one), _is_held(graph, scope, other)
    return _say_the_same(graph, one, other) if all(held) else not any(held)


def _replaces(graph: GraphData, new: VersionKey, old: VersionKey) -> bool:
    return graph.has_edge(new, old, EdgeType.SUPERSEDES)


def _is_held(graph: GraphData, scope: str, version: VersionKey) -> bool:
    """Return whether a version is held: not deleted, and not replaced by another scope."""
    return not graph.is_tombstone(version) and (not scope or graph.scope_of_version(version) in (scope, ""))


def _change(graph: GraphData, scope: str, ref: str, before: VersionKey | None, after: VersionKey) -> Change | None:
    held, holds = before is not None and _is_held(graph, scope, before), _is_held(graph, scope, after)
    if held and holds:
        assert before is not None
        if before == after or _say_the_same(graph, before, after):
            return None
        return Change(ChangeKind.CHANGED, ref, before, after, graph.producer(after))
    if held:
        return Change(ChangeKind.FORGOTTEN, ref, before, after, graph.producer(after))
    return Change(ChangeKind.LEARNT, ref, None, after, graph.producer(after)) if holds else None


def _say_the_same(graph: GraphData, one: VersionKey, other: VersionKey) -> bool:
    """Return whether two versions are equal by digest, without digests by whole contents."""
    digests = graph.digest(one), graph.digest(other)
    if all(digests):
        return digests[0] == digests[1]
    cut = graph.nodes[one]["truncated"] or graph.nodes[other]["truncated"]
    return not cut and bool(graph.content(one)) and graph.content(one) == graph.content(other)
