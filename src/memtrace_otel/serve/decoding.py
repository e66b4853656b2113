"""The decoding process: turns what waits in the inbox into spans, in order, and counts what arrives.

Started as `python -m memtrace_otel.serve.decoding FILE`.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from memtrace_otel.serve.arrivals import WatchedStore
from memtrace_otel.serve.background import Tell, set_up, work
from memtrace_otel.serve.counting import Counting
from memtrace_otel.serve.progress import Progress, seen_in
from memtrace_otel.sources import NewSpan

_NICE = 5
"""Acknowledging comes first where both need the same core."""
_LOOK_SECONDS = 2.0
"""Other processes write the same file without a word to this one."""
_MOST_SECONDS = 0.1
"""Of a pause in a burst: what took longer waited for the lock itself, or was a request of many megabytes."""


def main(path: str) -> None:
    """Work until standard input ends."""
    tell = set_up(_NICE)
    with Counting(Path(path)) as counting, WatchedStore.open(path) as store:
        work(store.skip, _Work(store, counting, tell).step, tell)


@dataclass(frozen=True, slots=True)
class _Work:
    """What this process does, step by step, and whom it tells."""

    store: WatchedStore
    counting: Counting
    tell: Tell

    def step(self) -> float:
        """Decode one batch; return after how many seconds there may be more."""
        started = time.monotonic()
        batch = self.store.decode_batch()
        if batch is not None:
            self._count(batch.spans, batch.quarantined)
            if self.store.is_in_burst():  # who receives has the lock and the disk to itself for a while
                time.sleep(min((time.monotonic() - started) / 2, _MOST_SECONDS))
            return 0.0
        for spans in self.store.arrived():
            self._count(spans)
        return _LOOK_SECONDS

    def _count(self, spans: Sequence[NewSpan], quarantined: int = 0) -> None:
        counted = spans if self.counting.is_mine() else ()
        self.tell(Progress(len(counted), quarantined, seen=seen_in(counted)))


if __name__ == "__main__":
    main(sys.argv[1])
