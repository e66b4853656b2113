"""The store as the background processes see it: each span that comes into the file is noticed, whoever decoded it."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from sqlite3 import Connection

from memtrace_otel.model import is_unique
from memtrace_otel.semconv import CHANGING_KINDS
from memtrace_otel.sources import DamagedError, NewSpan, SqliteStore
from memtrace_otel.sources.database import unsynced
from memtrace_otel.sources.ingest import decode_batch

_BATCH_BYTES = 1 << 18
_PAGE_BYTES = 4 << 20
_BURST_SECONDS = 10.0
_OLDEST = "SELECT received FROM inbox ORDER BY id LIMIT 1"
_BOUNDS = """
SELECT coalesce((SELECT min(id) FROM inbox), seq + 1), seq FROM sqlite_sequence WHERE name = 'inbox'
"""


@dataclass(frozen=True, slots=True)
class Batch:
    """As `memtrace_otel.sources.ingest.Batch`, of spans as they are counted."""

    spans: list[NewSpan]
    quarantined: int
    last: int = 0


class WatchedStore(SqliteStore):
    """Reading decodes nothing: that is done batch by batch. Rows have ascending numbers, none is given twice, so that a
    gap tells of spans that another process decoded."""

    _seen = 0

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
            batch = decode_batch(connection, _BATCH_BYTES)
        if batch is None:
            self._burst = None
        if batch and batch.spans:
            after = batch.last - len(batch.spans)
            if self._own and self._own[-1][1] == after:
                after = self._own.pop()[0]
            self._own.append((after, batch.last))
        return batch and Batch([NewSpan.of(span) for span in batch.spans], batch.quarantined, batch.last)

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
        """Return the memories that spans of a trace are of, '' among them where one is of none; none where a page of
        the file cannot be read."""
        with suppress(DamagedError):
            return super().scopes_of(trace_id)
        return []

    def changed_by(self, span: NewSpan) -> set[str]:
        """Return the memories that a span that changes records names: it may be of another one, or of none."""
        if span.fields.kind not in CHANGING_KINDS:
            return set()
        traces = {origin[:32] for origin in span.fields.origins}
        found = {scope for trace_id in traces for scope in self.scopes_of(trace_id)}
        if unique := [ref for ref in span.fields.written if is_unique(ref)]:
            with suppress(DamagedError):
                found |= {scope for ref in unique for scopes in self.writer_scopes(ref).values() for scope in scopes}
        return found

    def newest(self) -> int:
        """Return the highest row of a span."""
        with self._locked() as connection:
            return int(connection.execute("SELECT coalesce(max(id), 0) FROM span").fetchone()[0])

    def _indexed_pages(self, after: int, last: int) -> Iterator[tuple[int, list[NewSpan]]]:
        """Yield the spans with row numbers behind `after`, up to `last`, page by page, each with its last number."""
        while after < last:
            with self._locked() as connection:
                clause = "WHERE id > ? AND id <= ? ORDER BY id LIMIT 256"
                page, _ = self._read(connection, clause, (after, last), _PAGE_BYTES)
            if not page:
                return
            after = page[-1][0][1]
            yield after, [NewSpan.of(span) for _, span in page if span]

    def indexed_since(self, since: int, kind: str = "") -> Iterator[NewSpan]:
        """Yield the spans (of one kind) that started at `since` (ns) or later, by start time."""
        yield from map(NewSpan.of, self.spans(since=since, kinds=(kind,) if kind else ()))
