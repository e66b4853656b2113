"""What a run left in the database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from memtrace_otel.model import OperationSpan
from memtrace_otel.semconv import Incomplete, OpKind
from memtrace_otel.sources import SqliteStore

MOST = 20_000
"""Spans that are counted: reading them takes about a second."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """Memory operations that started after a moment: how many by system, how many judge an answer, and how many have
    no contents because capture was off. Not `complete` when there are more than were counted."""

    systems: Mapping[str, int]
    judged: int
    without_content: int
    complete: bool = True

    @property
    def operations(self) -> int:
        """All of them."""
        return sum(self.systems.values())


def read_recorded(database: Path, since: int) -> Recorded:
    """Count what `database` holds of the time from `since` (ns), 20,000 spans at most. Raises StoreError.

    A database that does not exist holds nothing.
    """
    spans: list[OperationSpan] = []
    if database.exists():
        with SqliteStore.open(database, create=False) as store:
            spans = list(islice(store.spans(since=since, kinds=tuple(OpKind)), MOST + 1))
    operations = [span for span in spans[:MOST] if not span.part]
    return Recorded(
        systems=dict(Counter(span.system or "unnamed" for span in operations).most_common()),
        judged=sum(span.kind == OpKind.JUDGE for span in operations),
        without_content=sum(Incomplete.CONTENT_OFF in span.incomplete for span in operations),
        complete=len(spans) <= MOST,
    )
