"""The attributing process: looks at what arrives in the file, and attributes failing traces. However large a memory is
that it reads, decoding goes on.

Started as `python -m memtrace_otel.serve.attributing FILE URL`; the URL, perhaps empty, is of the backend to look into.
"""

from __future__ import annotations

import sys

from memtrace_otel import settings
from memtrace_otel.monitoring import export_metrics
from memtrace_otel.serve.arrivals import WatchedStore
from memtrace_otel.serve.attribution import Attribution
from memtrace_otel.serve.background import set_up, work
from memtrace_otel.sources import open_source

_NICE = 10
"""Decoding comes first."""
_LOOK_SECONDS = 0.5
"""Nobody says a word to this process: what is new is in the file."""
_BEHIND_SECONDS = 1.0
"""While requests wait longer to be decoded, both cores have more urgent work."""


def main(path: str, look_in: str) -> None:
    """Work until standard input ends."""
    tell = set_up(_NICE)
    export_metrics()
    attribution = Attribution(settings.QUIET_SECONDS.read(), open_source(look_in) if look_in else None)
    with WatchedStore.open(path) as store:

        def start() -> None:
            store.skip()
            attribution.resume(store)

        def step() -> float:
            """Look at what arrived, attribute one trace; return after how many seconds there may be more."""
            if store.behind() > _BEHIND_SECONDS:
                return _LOOK_SECONDS
            for spans in store.arrived():
                attribution.notice(spans, store)
            tell(attribution.attribute_next(store))
            return min(_LOOK_SECONDS, attribution.wait())

        work(start, step, tell)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
