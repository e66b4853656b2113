"""The attributing process of a server: watches the database, attributes failing traces, sends the verdicts.

Started as `python -m memtrace_otel.serve.attributing FILE URL`. The URL, perhaps empty, is that of the backend whose
spans are not sent again (`--look-in`). Decoding goes on meanwhile, however large a memory is that is read here.
"""

from __future__ import annotations

import sys
import time
from contextlib import closing, nullcontext

from memtrace_otel import settings
from memtrace_otel.annotate import Annotation, BackendLog
from memtrace_otel.model import Attributed
from memtrace_otel.pipeline.diagnose import shown_by
from memtrace_otel.pipeline.export_metrics import export_metrics
from memtrace_otel.pipeline.watch import Observer, Watcher
from memtrace_otel.serve.arrivals import LiveStore
from memtrace_otel.serve.background import Tell, set_up, work
from memtrace_otel.serve.progress import Pair, Progress, pair_of
from memtrace_otel.sources import open_source

_NICE = 10
"""Decoding comes first."""
_LOOK_SECONDS = 0.5
"""Time between looks into the file: nobody wakes this process."""
_BEHIND_SECONDS = 1.0
"""While requests wait longer to be decoded, decoding needs the processor, and a marker or a cause may wait there."""
_LEAST_QUIET = 0.2
"""Least quiet period (s): under load something always waits to be decoded, for less than that."""
_MOST_PAIRS = 1000
_DAY = 24 * 3600 * 10**9


def main(path: str, look_in: str) -> None:
    """Work until standard input ends."""
    tell = set_up(_NICE)
    export_metrics()
    quiet = max(settings.QUIET_SECONDS.read(), _LEAST_QUIET)
    opened = closing(open_source(look_in)) if look_in else nullcontext()
    with LiveStore.open(path) as store, opened as backend:
        log = BackendLog(shown_by(backend), store) if backend else store
        since = time.time_ns() - _DAY
        watcher = Watcher(store, log, quiet=quiet, since=since, interval=_LOOK_SECONDS, observer=_Report(tell))

        def start() -> None:
            tell(Progress(answering=frozenset(pair_of(span.system, span.service) for span in store.answering())))

        def step() -> float:
            """Attribute what is due; return after how many seconds there may be more."""
            if store.behind() > min(_BEHIND_SECONDS, quiet):
                return _LOOK_SECONDS
            return watcher.step()

        work(start, step, tell)


class _Report(Observer):
    """Reports what the watcher does to the server."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._expected: set[Pair] = set()

    def expects(self, system: str, service: str) -> None:
        pair = pair_of(system, service)
        if pair not in self._expected and len(self._expected) < _MOST_PAIRS:
            self._expected.add(pair)
            self._tell(Progress(answering=frozenset({pair})))

    def attributed(self, made: Annotation) -> None:
        attributed = (Attributed.of(made.verdict, made.seconds),) if made.spans else ()
        self._tell(Progress(verdicts=1, attributed=attributed))

    def failed(self) -> None:
        self._tell(Progress(errors=1))

    def searched(self, succeeded: bool, waiting: int) -> None:
        if not succeeded:
            self._tell(Progress(failed_sends=1))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
