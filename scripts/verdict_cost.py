#!/usr/bin/env python3
"""Print the CPU time of one verdict in stores of several sizes (docs/adr/0019).

    memtrace-otel bench generate --cases 16 --seed 7 --messages 500..500 --out A
    memtrace-otel bench generate --cases 16 --seed 7 --messages 2000..2000 --out B
    scripts/verdict_cost.py A B

Each case becomes a database of its own. Of three runs the fastest counts.
"""

from __future__ import annotations

import sys
import tempfile
import time
from pathlib import Path

from memtrace_otel.bench.generate import case_files
from memtrace_otel.bench.run import read_spans
from memtrace_otel.otlp import encode_request
from memtrace_otel.pipeline.diagnose import diagnose
from memtrace_otel.sources import SqliteStore


def main() -> None:
    for folder in map(Path, sys.argv[1:]):
        costs: list[float] = []
        for path in case_files(folder):
            with tempfile.TemporaryDirectory() as place, SqliteStore.open(Path(place, "run.db")) as store:
                store.add_requests(encode_request([span]) for span in read_spans(path))
                costs += [min(cost(store, trace_id) for _ in range(3)) for trace_id in store.failing(0)]
        print(f"{folder}: {len(costs)} verdicts, {sum(costs) / len(costs):.2f} s each" if costs else f"{folder}: none")


def cost(store: SqliteStore, trace_id: str) -> float:
    started = time.process_time()
    list(diagnose(store, store, [trace_id], known=True))
    return time.process_time() - started


if __name__ == "__main__":
    main()
