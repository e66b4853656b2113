"""The decoding process: decodes the requests of the inbox into spans, in order, and counts the new spans.

Started as `python -m memtrace_otel.serve.decoding FILE`.
"""

from __future__ import annotations

import sys
import time

from memtrace_otel.serve.arrivals import LiveStore
from memtrace_otel.serve.background import set_up, work
from memtrace_otel.serve.progress import Progress, seen_in

_NICE = 5
"""Acknowledging comes first where both need the same core."""
_LOOK_SECONDS = 2.0
"""Time between looks into the file: another process may write to it without waking this process."""
_MOST_SECONDS = 0.1
"""Longest pause in a burst: a batch that took longer waited for the lock, or was a request of many megabytes."""


def main(path: str) -> None:
    """Work until standard input ends."""
    tell = set_up(_NICE)
    with LiveStore.open(path) as store:

        def step() -> float:
            """Decode one batch; return after how many seconds there may be more."""
            started = time.monotonic()
            batch = store.decode_batch()
            if batch is None:
                return _LOOK_SECONDS
            tell(Progress(len(batch.spans), batch.quarantined, seen=seen_in(batch.spans)))
            if store.is_in_burst():  # the receiver has the lock and the disk to itself for a while
                time.sleep(min((time.monotonic() - started) / 2, _MOST_SECONDS))
            return 0.0

        work(lambda: None, step, tell)


if __name__ == "__main__":
    main(sys.argv[1])
