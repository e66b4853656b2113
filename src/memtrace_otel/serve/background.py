"""The second process: turns what waits in the inbox into spans, in order, attributes failures in between, and packs
spans when nothing else is to be done.

Started as `python -m memtrace_otel.serve.background FILE URL`; the URL, perhaps empty, is of the backend to look
into. A line on standard input says that something waits, its end that the server has ended. Each line on standard
output is a `Progress`.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TextIO

from memtrace_otel import settings
from memtrace_otel.monitoring import export_metrics
from memtrace_otel.serve.arrivals import WatchedStore
from memtrace_otel.serve.attribution import Attribution
from memtrace_otel.serve.counting import Counting
from memtrace_otel.serve.packing import Packing
from memtrace_otel.serve.progress import Progress, seen_in
from memtrace_otel.store import NewSpan, StoreError, open_source

_logger = logging.getLogger(__name__)
_LOOK_SECONDS = 2.0
"""Other processes write the same file without a word to this one."""
_RETRY_SECONDS = 1.0
_NICE = 5
"""Acknowledging comes first where both need the same core."""
_PAUSE_SECONDS = 0.003


def main(path: str, look_in: str) -> None:
    """Work until standard input ends."""
    told = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever else is printed, metrics perhaps, is no progress
    for ignored in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ignored, signal.SIG_IGN)  # a whole group is told at once; the server says when to end
    os.nice(_NICE)
    logging.basicConfig(format="memtrace-otel: %(message)s")
    export_metrics()
    attribution = Attribution(settings.QUIET_SECONDS.read(), open_source(look_in) if look_in else None)
    packing = Packing(settings.PACK_SECONDS.read())
    with Counting(Path(path)) as counting, WatchedStore.open(path) as store:
        store.skip()
        attribution.resume(store)
        work = _Work(store, attribution, packing, counting, told)
        wait = 0.0
        while _is_wanted(wait):
            try:
                wait = work.step()
            except BrokenPipeError:  # nobody is told any more: the server was killed
                return
            except StoreError as error:
                _logger.warning("decoding waits: %s", error)
                wait = _RETRY_SECONDS


@dataclass(frozen=True, slots=True)
class _Work:
    """What this process does, step by step, and whom it tells."""

    store: WatchedStore
    attribution: Attribution
    packing: Packing
    counting: Counting
    told: TextIO

    def step(self) -> float:
        """Decode one batch; when nothing waits, attribute one trace and pack a few spans. Return after how many seconds
        there may be more."""
        batch = self.store.decode_batch()
        if batch is not None:
            self._notice(batch.spans, batch.quarantined)
            return 0.0
        for spans in self.store.arrived():
            self._notice(spans)
        self._tell(self.attribution.attribute_next(self.store))
        started = time.monotonic()
        if not self.packing.step(self.store):
            self._tell(Progress(packed=self.packing.packed))
            self.packing.packed = 0
            return min(_LOOK_SECONDS, self.attribution.wait())
        # The write lock is free for others as long as it was held.
        return min(max(_PAUSE_SECONDS, time.monotonic() - started), self.attribution.wait())

    def _notice(self, spans: list[NewSpan], quarantined: int = 0) -> None:
        self.attribution.notice(spans, self.store)
        counted = spans if self.counting.is_mine() else []
        answering = self.attribution.answering()
        self._tell(Progress(len(counted), quarantined, seen=seen_in(counted), answering=answering))

    def _tell(self, progress: Progress) -> None:
        if progress:
            print(progress.line(), file=self.told, flush=True)


def _is_wanted(seconds: float) -> bool:
    """Wait for a word of the server; False when it has ended."""
    ready, _, _ = select.select([0], [], [], seconds)
    return not ready or bool(os.read(0, 65536))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
