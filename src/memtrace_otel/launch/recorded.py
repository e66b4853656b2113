"""What a run left in the database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from memtrace_otel.semconv import Incomplete, OpKind
from memtrace_otel.store import SqliteStore


@dataclass(frozen=True, slots=True)
class Recorded:
    """Memory operations that started after a moment: how many by system, in how many traces, how many were judged,
    and how many have no contents because capture was off."""

    systems: Mapping[str, int]
    traces: int
    judged: int
    without_content: int

    @property
    def operations(self) -> int:
        """All of them."""
        return sum(self.systems.values())


def read_recorded(database: Path, since: int) -> Recorded:
    """Count what `database` holds of the time from `since` (ns); nothing when it does not exist. Raises StoreError."""
    systems: Counter[str] = Counter()
    traces: set[str] = set()
    judged = without_content = 0
    if database.exists():
        with SqliteStore.open(database, create=False) as store:
            for span in store.spans(since=since, kinds=tuple(OpKind)):
                if span.part:
                    continue
                systems[span.system or "unnamed"] += 1
                traces.add(span.trace_id)
                judged += span.kind == OpKind.JUDGE
                without_content += Incomplete.CONTENT_OFF in span.incomplete
    return Recorded(dict(systems.most_common()), len(traces), judged, without_content)
