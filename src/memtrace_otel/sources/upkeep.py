"""What a store promises to whoever keeps it; `memtrace_otel.testing.UpkeepContract` holds implementations to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from memtrace_otel.sources.protocols import SpanStore, StoreStats


@dataclass(frozen=True, slots=True)
class ScopeStats:
    """Counts of one memory scope: its own spans, the traces they are in, bytes of the spans and of their streams (one
    that several scopes share counts for each), start times in ns."""

    scope: str
    spans: int
    traces: int
    bytes: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class StoreSize:
    """Bytes of the database: `used` by what it holds, `free` inside the file and given back by `compact`."""

    used: int
    free: int


@dataclass(frozen=True, slots=True)
class Compaction:
    """Bytes by which the database became smaller, below 0 where others wrote more meanwhile; not `finished` while
    another process still reads older pages."""

    bytes: int
    finished: bool


@dataclass(frozen=True, slots=True)
class Pruned:
    """How many spans went, and from how many traces; how many unreadable requests went."""

    traces: int
    spans: int
    quarantined: int = 0


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What was erased: `spans` lost their contents, `readers` of other scopes lost those of the variables they read
    from these spans. `references` are the whole contents in a content store, which is not touched. Not `finished` while
    the files hold copies, since another process reads older pages or they could not be written anew: `compact` then."""

    spans: int
    readers: int
    verdicts: int
    quarantined: int
    references: tuple[str, ...]
    finished: bool


@dataclass(frozen=True, slots=True)
class Damage:
    """Something that is not as it was written: `kind` is `integrity`, `undecodable`, `mismatch` or `dangling`; or
    `unfinished`: an erasure that was interrupted."""

    kind: str
    place: str
    reason: str


class StoreUpkeep(SpanStore, Protocol):
    """A store that can be kept small, sound and clean while others use it.

    Every method raises StoreError when it cannot do its work. One that changes the store takes effect for spans
    acknowledged before the call. A reader, however long it stays, keeps none of them waiting, nor `add_request`.
    """

    def stats(self) -> StoreStats:
        """Count what the store holds."""
        ...

    def scopes(self) -> list[ScopeStats]:
        """Count by memory scope, in order of the scopes. Spans without a scope are not in it."""
        ...

    def size(self) -> StoreSize:
        """Return the space that the store takes."""
        ...

    def check(self) -> list[Damage]:
        """Read everything and return what is damaged, [] when nothing is; at most 1,000 findings. Changes nothing."""
        ...

    def prune(self, *, before: int | None = None, max_bytes: int | None = None, scope: str | None = None) -> Pruned:
        """Remove traces, the one with the oldest last span first, and what is said of them: the verdicts on their
        answers, what was remembered as sent, and in other traces attributions and judgements of nothing else.

        A trace goes when its last span started before `before` (ns), or while the store uses more than `max_bytes`;
        with neither, when it is of the scope. With `scope` only spans of that scope go, and those without a scope in
        traces that hold no other scope. What stays is unchanged; a version whose writer went has a missing operation.
        Without `scope`, unreadable requests go by the same rule, by when they were received and before any trace. The
        age is told by the clock of whoever made the spans. Writers get their turn meanwhile; what is interrupted stays
        removed as far as it came. Raises ValueError when nothing is given; StoreError, with nothing removed, when what
        is of no trace alone takes more than `max_bytes`.
        """
        ...

    def forget(self, scope: str, *, compact: bool = True) -> Forgotten:
        """Erase the contents of a memory scope wherever the store has them, a few spans at a time.

        When it is interrupted the rest stays as it was: `check` says `unfinished`, and the next call takes it up where
        it was left. Without `compact` the files hold copies afterwards until `compact` is called: only that makes
        writers wait. Raises ValueError without a scope.

        Erased are contents, previews, digests and references to whole contents, also where they are the id of a ref:
        such an id becomes a random one, the same at each place. Free text of attributes, events and status goes too.
        That is done to the spans of the scope, to spans without a scope in the traces they are in, to such spans that
        read what any of these produced, and to unreadable requests that name the scope or one of the traces (these are
        emptied). A span of another scope loses what it says of the versions it read from them. Verdicts that name a
        trace of any of these (answer, operation, alternative, evidence) are erased with their spans.

        The shape of the graph stays: spans, names, kinds, times, refs, origins, roles, actions, sizes, flow, links.
        What only equal digests told (a read without an origin, a write shown by two spans) goes where the other span is
        of another scope, or of none, and stays as it is.
        Erased spans say `forgotten` in `memtrace.incomplete`. An unknown scope gives 0 spans.
        """
        ...

    def compact(self) -> Compaction:
        """Store what there is in less space, and give free space back to the file system; every answer stays the same.

        Writers wait while the store is written anew, readers do not.
        """
        ...
