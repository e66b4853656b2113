"""The database as the background processes of a server use it: decoded batch by batch, searched by arrival."""

from __future__ import annotations

import math
import time
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from sqlite3 import Connection
from typing import Self

from memtrace_otel import settings
from memtrace_otel.model import OperationSpan, has_failing_evaluation, judged_traces
from memtrace_otel.semconv import ATTRIBUTION_SCOPE, OpKind
from memtrace_otel.sources import SqliteStore
from memtrace_otel.sources.database import unsynced
from memtrace_otel.sources.ingest import Batch, decode_batch

_BATCH_BYTES = 1 << 18
_PAGE_BYTES = 4 << 20
_BURST_SECONDS = 10.0
_LATEST = 10_000
"""Spans that are looked through at the start, whatever their time is: about a second of reading."""
_OLDEST = "SELECT received FROM inbox ORDER BY id LIMIT 1"
_BOUNDS = """
SELECT coalesce((SELECT min(id) FROM inbox), seq + 1), seq FROM sqlite_sequence WHERE name = 'inbox'
"""


class LiveStore(SqliteStore):
    """A database that a server fills. Reading decodes nothing: the decoding process does that.

    Rows of spans have ascending numbers, and no number is given twice.
    """

    def __init__(self, connection: Connection, path: Path) -> None:
        super().__init__(connection, path)
        self._seen: int | None = None
        self._burst: tuple[float, int] | None = (-math.inf, 0)  # start of the burst, and its first request

    def decode(self) -> int:
        """Leave the inbox as it is."""
        return 0

    @contextmanager
    def session(self, *, cases: int = 1) -> Generator[Self]:
        """Give this store, with nothing noted as incomplete."""
        self.incomplete.clear()
        yield self

    def decode_batch(self) -> Batch | None:
        """Decode the oldest requests of the inbox; see `SqliteStore`.

        The batches are small, since the receiver waits for each to be written, and not synced: a request whose rows
        are lost with the power is in the inbox again.
        """
        with self._locked() as connection, unsynced(connection):
            batch = decode_batch(connection, _BATCH_BYTES)
        if batch is None:
            self._burst = None
        return batch

    def behind(self) -> float:
        """Return for how many seconds the oldest request waits to be decoded, 0 when none does."""
        with self._locked() as connection:
            received = connection.execute(_OLDEST).fetchone()
        return (time.time_ns() - received[0]) / 1e9 if received else 0.0

    def is_in_burst(self) -> bool:
        """Tell whether more requests wait than were decoded since none waited, for ten seconds at most.

        Decoding with pauses is slower. Pauses under a steady load would keep decoding behind for ever.
        """
        now = time.monotonic()
        with self._locked() as connection:
            first, last = connection.execute(_BOUNDS).fetchone() or (1, 0)
        if first > last:
            self._burst = None
            return False
        began, begin = self._burst = self._burst or (now, first)
        return last - first >= first - begin and now - began < _BURST_SECONDS

    def failing(self, since: int, known: dict[str, None] | None = None) -> list[str]:
        """Return the ids of the traces whose failing evaluation arrived after the last call, in order of arrival.

        Evaluations count whichever process decoded them. A passing evaluation counts, too, when the answer has a
        verdict. The first call returns the traces with a failing evaluation since `since` (ns), or among the newest
        spans.
        """
        newest = self._newest()
        found: dict[str, None] = {}
        if self._seen is None:
            found |= dict.fromkeys(super().failing(since))
            self._seen = max(0, newest - _LATEST)
        self._seen = min(self._seen, newest)  # the newest traces may have been pruned
        threshold = settings.EVALUATION_THRESHOLD.read()
        for span in self._arrived("evaluates = 1", self._seen):
            if span.instrumentation_scope != ATTRIBUTION_SCOPE:
                fails = has_failing_evaluation(span, threshold)
                found |= dict.fromkeys(
                    trace_id for trace_id in sorted(judged_traces(span)) if fails or self.verdicts(trace_id)
                )
        self._seen = newest
        return list(found)

    def answering(self) -> Iterator[OperationSpan]:
        """Yield the answers among the newest spans."""
        return self._arrived(f"kind = '{OpKind.RESPOND}'", max(0, self._newest() - _LATEST))

    def _arrived(self, condition: str, after: int) -> Iterator[OperationSpan]:
        """Yield the spans with a row behind `after`, in order of arrival, page by page."""
        clause = f"WHERE {condition} AND id > ? ORDER BY id LIMIT 256"
        while True:
            with self._locked() as connection:
                rows, _ = self._read(connection, clause, (after,), _PAGE_BYTES)
            if not rows:
                return
            yield from (span for _, span in rows if span)
            after = rows[-1][0][1]

    def _newest(self) -> int:
        """Return the highest row of a span."""
        with self._locked() as connection:
            return int(connection.execute("SELECT coalesce(max(id), 0) FROM span").fetchone()[0])
