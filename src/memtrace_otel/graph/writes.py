"""Find the span that wrote a record, and the write behind a read without an origin (wire contract, lookup (c))."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from memtrace_otel.graph.assembly import Assembly
from memtrace_otel.graph.hierarchy import Hierarchy
from memtrace_otel.graph.keys import RECORD_KINDS, ROOT_KINDS, TRACED_KINDS, TURN_KINDS, VersionKey
from memtrace_otel.model import OperationSpan, Variable, is_unique, ref_kind
from memtrace_otel.semconv import SEQ_BITS, Action

CHANGES = frozenset({Action.UPDATE, Action.DELETE})


@dataclass(frozen=True, slots=True)
class Write:
    """One version written by one operation."""

    version: VersionKey
    operation: OperationSpan
    output: Variable

    @property
    def order(self) -> tuple[int, int, int, str]:
        """Order of writing: the operation that ends first wrote first."""
        span = self.operation
        return _end(span), span.start, span.seq or 0, self.version.origin

    @property
    def deletes(self) -> bool:
        """Whether the version is a tombstone."""
        return self.output.action == Action.DELETE

    @property
    def evolves(self) -> bool:
        """Whether the write replaces the version written before under this ref."""
        return evolves(self.output)

    @property
    def failed(self) -> bool:
        """Whether the operation that was to write a record ended with an error: the record may not be written."""
        return self.operation.status == "error" and self.evolves


def evolves(output: Variable) -> bool:
    """Return whether an output replaces the version written before under its ref."""
    return ref_kind(output.ref) in RECORD_KINDS or output.action in CHANGES


@dataclass(slots=True)
class Timeline:
    """Writes of one record in order. Complete before the first question is asked."""

    hierarchy: Hierarchy
    writes: list[Write] = field(default_factory=list[Write])
    _ends: list[int] = field(default_factory=list[int])
    _starts: list[tuple[int, int]] = field(default_factory=list[tuple[int, int]])
    _outside: list[int] = field(default_factory=list[int])
    """By place in `_starts`: the last place before whose write is not by an operation around; -1 for none."""

    def close(self) -> None:
        """Sort; call once after the last write was added."""
        self.writes.sort(key=lambda write: write.order)
        self._ends = [_end(write.operation) for write in self.writes]
        self._starts = sorted((write.operation.start, place) for place, write in enumerate(self.writes))

    def last_before(self, reader: OperationSpan) -> Write | None:
        """Return the last write that ended before the reader started, else the last that started before the reader.

        Operations around the reader have not written yet when the reader starts.
        """
        for place in range(bisect_right(self._ends, reader.start) - 1, -1, -1):
            if _precedes(self.writes[place].operation, reader):
                return self.writes[place]
        place = self._last_outside(bisect_left(self._starts, (reader.start, -1)) - 1, reader.origin)
        return self.writes[self._starts[place][1]] if place >= 0 else None

    def last_inside(self, reader: OperationSpan) -> Write | None:
        """Return the last write by an operation that ran inside the reader."""
        for place in range(bisect_right(self._ends, _end(reader)) - 1, -1, -1):
            span = self.writes[place].operation
            if reader.start <= span.start and self.hierarchy.encloses(reader.origin, span.origin):
                return self.writes[place]
        return None

    def _last_outside(self, place: int, origin: str) -> int:
        """Return the last place in `_starts`, from `place` downwards, with a write by no operation around a span.

        The operations around an operation around the span are skipped together.
        """
        while place >= 0 and self.hierarchy.encloses(self._origin(place), origin):
            for missing in range(len(self._outside), place + 1):
                self._outside.append(self._last_outside(missing - 1, self._origin(missing)))
            place = self._outside[place]
        return place

    def _origin(self, place: int) -> str:
        return self.writes[self._starts[place][1]].version.origin


def _end(span: OperationSpan) -> int:
    return max(span.end, span.start)


def _precedes(writer: OperationSpan, reader: OperationSpan) -> bool:
    """Return whether a writer that ended no later than the reader started came first. Equal times need numbers."""
    if writer.start < reader.start:
        return True
    if writer.seq is None or reader.seq is None or writer.resource != reader.resource:
        return False
    return writer.seq < reader.seq and writer.seq >> SEQ_BITS == reader.seq >> SEQ_BITS


class WriteIndex:
    """All writes, by record within its owner, by record and digest, and by trace."""

    def __init__(self, assembly: Assembly) -> None:
        self._scopes = assembly.scopes
        hierarchy = assembly.hierarchy
        self._records: defaultdict[tuple[str, str], Timeline] = defaultdict(lambda: Timeline(hierarchy))
        """(owner, ref) -> writes."""
        self._digests: defaultdict[tuple[str, str, str], Timeline] = defaultdict(lambda: Timeline(hierarchy))
        self._traces: defaultdict[tuple[str, str], Timeline] = defaultdict(lambda: Timeline(hierarchy))
        self._owners: defaultdict[str, set[str]] = defaultdict(set)
        self._joined: dict[tuple[str, str], str] = {}
        self._failed: set[VersionKey] = set()

    # --- filling -------------------------------------------------------------------------------------------------
    def join(self, ref: str, one: str, other: str) -> None:
        """Note that two scopes mean the same record by `ref`. Call before the writes are added."""
        first, second = sorted((self._root(one, ref), self._root(other, ref)))
        if first != second:
            self._joined[second, ref] = first

    def add(self, write: Write, *, failed: bool = False) -> None:
        """Add one write. A `failed` write is found by its content only."""
        ref, span = write.version.ref, write.operation
        if failed:
            self._failed.add(write.version)
        else:
            self._traces[span.trace_id, ref].writes.append(write)
        if ref_kind(ref) in TURN_KINDS:
            return
        owner = self._owner(self._scopes[span.origin], ref)
        self._owners[ref].add(owner)
        if not failed:
            self._records[owner, ref].writes.append(write)
        if not write.deletes and (write.output.digest or not failed):  # a tombstone is never read
            self._digests[owner, ref, write.output.digest].writes.append(write)

    def close(self) -> None:
        """End the filling."""
        for timelines in (self._records, self._digests, self._traces):
            for timeline in timelines.values():
                timeline.close()

    # --- asking --------------------------------------------------------------------------------------------------
    def histories(self) -> Iterator[list[Write]]:
        """Yield the writes of every record in order."""
        return (timeline.writes for timeline in self._records.values())

    def find(self, reader: OperationSpan, variable: Variable) -> Write | None:
        """Return the write that a read without origin most likely saw, None when no write can be told."""
        kind = ref_kind(variable.ref)
        if kind in TRACED_KINDS:
            found = self._in_trace(reader, variable.ref, kind)
            if found is not None or kind in TURN_KINDS:
                return found
        scope = self._scopes[reader.origin]
        owner = self._owner(scope, variable.ref)
        owners = self._owners.get(variable.ref, set[str]())
        if owner not in owners:
            if scope:  # equal ids of two scopes are two records
                return None
            if len(owners) > 1 and variable.digest:  # the content identifies the owner
                owners = self._showing(reader, variable, owners)
            if len(owners) != 1:
                return None
            (owner,) = owners
        if variable.digest:  # the content is stronger evidence than the time
            timelines = (self._digests.get((owner, variable.ref, digest)) for digest in (variable.digest, ""))
            found = (same.last_before(reader) for same in timelines if same)
            return next((self._happened(write, owner) for write in found if write is not None), None)
        return self._records[owner, variable.ref].last_before(reader)

    def _owner(self, scope: str, ref: str) -> str:
        """Return what separates records of equal ref: nothing for universally unique ids, else the scope."""
        return "" if is_unique(ref) else self._root(scope, ref)

    def _showing(self, reader: OperationSpan, variable: Variable, owners: set[str]) -> set[str]:
        """Return the owners of a ref whose record had the content that was read."""
        timelines = {one: self._digests.get((one, variable.ref, variable.digest)) for one in owners}
        return {one for one, same in timelines.items() if same and same.last_before(reader)}

    def _happened(self, write: Write, owner: str) -> Write:
        """Return the write, or the write before a failed write that would have changed nothing."""
        if write.version not in self._failed:
            return write
        before = self._records[owner, write.version.ref].last_before(write.operation)
        return before if before is not None and before.output.digest == write.output.digest else write

    def _in_trace(self, reader: OperationSpan, ref: str, kind: str) -> Write | None:
        timeline = self._traces.get((reader.trace_id, ref))
        if timeline is None:
            return None
        found = timeline.last_before(reader)
        if found is None and kind not in ROOT_KINDS:
            found = timeline.last_inside(reader)
        return found

    def _root(self, scope: str, ref: str) -> str:
        while (scope, ref) in self._joined:
            scope = self._joined[scope, ref]
        return scope
