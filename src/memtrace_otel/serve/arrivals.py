"""The store as the background processes see it: each span that comes into the file is noticed, whoever decoded it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from sqlite3 import Connection

from memtrace_otel.model import is_unique
from memtrace_otel.semconv import CHANGING_KINDS
from memtrace_otel.sources import DamagedError, NewSpan, SqliteStore
from memtrace_otel.sources.connection import unsynced
from memtrace_otel.sources.inbox import Batch, drain_batch
from memtrace_otel.sources.lineage import owner_scopes
from memtrace_otel.sources.runs import RunPacker
from memtrace_otel.sources.space import give_back, last_row, settle

_BATCH_BYTES = 1 << 18
_BURST_SECONDS = 10.0
_OLDEST = "SELECT received FROM inbox ORDER BY id LIMIT 1"
_BOUNDS = """
SELECT coalesce((SELECT min(id) FROM inbox), seq + 1), seq FROM sqlite_sequence WHERE name = 'inbox'
"""
_SCOPES = "SELECT DISTINCT scope FROM span WHERE trace_id = ?"


class WatchedStore(SqliteStore):
    """Reading decodes nothing: that is done batch by batch. Rows have ascending numbers, none is given twice, so that a
    gap tells of spans that another process decoded."""

    _seen = 0
    _packer: RunPacker | None = None

    def __init__(self, connection: Connection, path: Path) -> None:
        super().__init__(connection, path)
        self._own: list[tuple[int, int]] = []
        self._burst: tuple[float, int] | None = (-math.inf, 0)  # when it began, with which request; None: none waits

    def decode(self) -> int:
        """Leave what waits where it is."""
        return 0

    def decode_batch(self) -> Batch | None:
        """Decode the oldest requests that wait; see `SqliteStore`.

        The batches are small, since who receives waits for each to be written, and not synced: a request whose rows
        are lost with the power is in the inbox again.
        """
        with self._locked() as connection, unsynced(connection):
            batch = drain_batch(connection, _BATCH_BYTES)
        if batch is None:
            self._burst = None
        if batch and batch.spans:
            after = batch.last - len(batch.spans)
            if self._own and self._own[-1][1] == after:
                after = self._own.pop()[0]
            self._own.append((after, batch.last))
        return batch

    def skip(self) -> None:
        """Take what is in the file as seen."""
        self._seen, self._own = self.newest(), []

    def behind(self) -> float:
        """Return for how many seconds the oldest request waits to be decoded, 0 when none does."""
        with self._locked() as connection:
            received = connection.execute(_OLDEST).fetchone()
        return (time.time_ns() - received[0]) / 1e9 if received else 0.0

    def is_in_burst(self) -> bool:
        """Tell whether more requests wait than were decoded since none waited (the first batch after that is not
        counted), ten seconds ago at most.

        Decoding that makes pauses is slower: with any number that wait, a load that it could follow would keep it from
        doing so.
        """
        now = time.monotonic()
        with self._locked() as connection:
            first, last = connection.execute(_BOUNDS).fetchone() or (1, 0)
        if first > last:
            self._burst = None
            return False
        began, begin = self._burst = self._burst or (now, first)
        return last - first >= first - begin and now - began < _BURST_SECONDS

    def arrived(self) -> Iterator[list[NewSpan]]:
        """Yield the spans that others decoded since the last time, page by page. A page is seen once the next is asked
        for: after an error the rest comes again."""
        highest = self.newest()
        self._seen = min(self._seen, highest)  # of the newest traces some were removed
        for before, last in (*self._own, (highest, highest)):
            for row, page in self._indexed_pages(self._seen, min(before, highest)):
                yield page
                self._seen = row
            self._seen = max(self._seen, last)
        self._own = []

    def latest(self, most: int) -> Iterator[NewSpan]:
        """Yield up to `most` spans that came last, in order of arrival."""
        newest = self.newest()
        for _, page in self._indexed_pages(max(0, newest - most), newest):
            yield from page

    def scopes_of(self, trace_id: str) -> list[str]:
        """Return the memories that spans of a trace are of, '' among them where one is of none; those that were read
        where a page of the file cannot be."""
        found: list[str] = []
        with suppress(DamagedError), self._locked() as connection:
            found += (scope for (scope,) in connection.execute(_SCOPES, (trace_id,)))
        return found

    def changed_by(self, span: NewSpan) -> set[str]:
        """Return the memories that a span that changes records names: it may be of another one, or of none."""
        if span.fields.kind not in CHANGING_KINDS:
            return set()
        traces = {origin[:32] for origin in span.fields.origins}
        found = {scope for trace_id in traces for scope in self.scopes_of(trace_id)}
        if unique := [ref for ref in span.fields.written if is_unique(ref)]:
            with suppress(DamagedError), self._locked() as connection:
                found |= owner_scopes(connection, unique)
        return found

    def newest(self) -> int:
        """Return the highest row of a span."""
        with self._locked() as connection:
            return last_row(connection)

    def pack(self, last: int) -> int:
        """Pack the next few spans up to row `last`, not synced; return how many, 0 at the end."""
        self._packer = self._packer or RunPacker(self._locked)
        with self._locked() as connection, unsynced(connection):
            return self._packer.pack(last)

    def give_back(self) -> bool:
        """Give a few free pages back to the file system; False when that is not worth it."""
        return give_back(self._locked)

    def settle(self) -> None:
        """Bring what was written into the file itself, as far as nobody is kept waiting."""
        settle(self._locked)
