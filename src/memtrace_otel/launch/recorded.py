"""Results of a run: memory operations in the database, and bytes of spans in the spool."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from memtrace_otel.graph.build import suppressed_calls
from memtrace_otel.model import OperationSpan
from memtrace_otel.semconv import Incomplete, OpKind
from memtrace_otel.sources import SqliteStore

MOST = 20_000
"""Counted spans; reading them takes about a second."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """Numbers of memory operations: by system, judgements of answers, and operations with contents off.

    `suppressed` are the calls that the program suppressed, in words.

    `complete` is False if the run has more than the counted spans. `waiting` are bytes of spans in the spool that did
    not reach the database.
    """

    systems: Mapping[str, int]
    judged: int
    without_content: int
    complete: bool = True
    waiting: int = 0
    suppressed: str = ""

    @property
    def operations(self) -> int:
        """All of them."""
        return sum(self.systems.values())


def read_recorded(database: Path, since: int) -> Recorded:
    """Count the operations in `database` that started at `since` (ns) or later, among 20,000 spans at most.

    A database that does not exist holds no operation. Raises SourceError.
    """
    spans: list[OperationSpan] = []
    suppressed = ""
    if database.exists():
        with SqliteStore.open(database, create=False) as store:
            spans = list(islice(store.spans(since=since, kinds=tuple(OpKind)), MOST + 1))
            suppressed = suppressed_calls(islice(store.spans(since=since, kinds=("",)), MOST))
    operations = [span for span in spans[:MOST] if not span.part]
    return Recorded(
        systems=dict(Counter(span.system or "unnamed" for span in operations).most_common()),
        judged=sum(span.kind == OpKind.JUDGE for span in operations),
        without_content=sum(Incomplete.CONTENT_OFF in span.incomplete for span in operations),
        complete=len(spans) <= MOST,
        waiting=_waiting_bytes(database, since),
        suppressed=suppressed,
    )


def _waiting_bytes(database: Path, since: int) -> int:
    """Return the bytes in the spools of exporters to a database that were written at `since` (ns) or later."""
    from memtrace_otel.capture.delivery.spool import spool_directory
    from memtrace_otel.sources.exporter import MemtraceSpanExporter

    # The service name of the program is part of the folder's name.
    own = spool_directory(MemtraceSpanExporter(database))
    size = 0
    for path in own.parent.glob(f"{MemtraceSpanExporter.__name__}-*/*.spool"):
        with suppress(OSError):
            found = path.stat()
            size += found.st_size if found.st_mtime_ns >= since else 0
    return size
