"""The store as the second process sees it: each span that comes into the file is noticed, whoever decoded it."""

from __future__ import annotations

from collections.abc import Iterator

from memtrace_otel.store import NewSpan, SqliteStore
from memtrace_otel.store.inbox import Batch, drain_batch

_BATCH_BYTES = 1 << 18
_HIGHEST = "SELECT coalesce(max(id), 0) FROM span"


class WatchedStore(SqliteStore):
    """Reading decodes nothing: that is done batch by batch. Rows have ascending numbers, so that a gap tells of spans
    that another process decoded."""

    _seen = 0
    _own = 0

    def decode(self) -> int:
        """Leave what waits where it is."""
        return 0

    def decode_batch(self) -> Batch | None:
        """Decode the oldest requests that wait; see `SqliteStore`.

        The batches are small, since who receives waits for each to be written, and not synced: a request whose rows
        are lost with the power is in the inbox again.
        """
        with self._locked() as connection:
            connection.execute("PRAGMA synchronous = NORMAL")
            try:
                batch = drain_batch(connection, _BATCH_BYTES)
            finally:
                connection.execute("PRAGMA synchronous = FULL")
        if batch:
            self._own += len(batch.spans)
        return batch

    def skip(self) -> None:
        """Take what is in the file as seen."""
        self._seen, self._own = self._highest(), 0

    def arrived(self) -> Iterator[list[NewSpan]]:
        """Yield the spans that others decoded since the last time, own ones among them, page by page."""
        highest = self._highest()
        if highest - self._seen == self._own:
            self._seen, self._own = highest, 0
            return
        seen = min(self._seen, highest)  # of the newest traces some were removed
        self._seen, self._own = highest, 0
        while page := self._indexed(seen, highest):
            seen = page[-1][0]
            yield [span for _, span in page]

    def _highest(self) -> int:
        with self._locked() as connection:
            return int(connection.execute(_HIGHEST).fetchone()[0])
