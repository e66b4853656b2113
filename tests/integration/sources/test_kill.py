"""Kill -9 at any moment of ingest and maintenance: the file stays sound and keeps every acknowledged request."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from memtrace_otel.sources import SqliteStore
from tests.integration.sources.lives import HERE, THERE, life, request

WORK = """
import sys
from memtrace_otel.sources import SqliteStore
from tests.integration.sources.lives import HERE, THERE, request

path, work = sys.argv[1:]
with SqliteStore.open(path) as store:
    for number in range(1000, 9000):
        store.add_request(request(number, THERE, 2000))
        print(number, flush=True)
        if work == "decode":
            store.decode()
        elif work == "prune":
            store.prune(before=(number - 950) * 10**9)
        elif work == "forget":
            store.add_requests(request(number % 50 + 1, HERE, 2000) for _ in range(5))
            store.forget(HERE)
        elif work == "compact":
            store.compact()
"""


@pytest.mark.parametrize("work", ["decode", "prune", "forget", "compact"])
def test_a_killed_process_loses_nothing_acknowledged(tmp_path: Path, work: str) -> None:
    path = tmp_path / "a.db"
    with SqliteStore.open(path) as store:
        store.add_requests(request(number, HERE, 500) for number in range(1, 51))
        store.decode()
    rng = random.Random(work)
    acknowledged: set[int] = set()
    for _ in range(5):
        process = subprocess.Popen([sys.executable, "-c", WORK, str(path), work], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        first = process.stdout.readline()
        time.sleep(rng.uniform(0.0, 0.3))
        process.kill()
        acknowledged.update(map(int, (first + process.stdout.read()).split("\n")[:-1]))
        process.wait()
        with SqliteStore.open(path, create=False) as store:
            assert store.check() == []
    with SqliteStore.open(path, create=False) as store:
        kept = acknowledged if work != "prune" else {max(acknowledged)}
        assert store.quarantined() == []
        assert {number for number in kept if len(store.trace(life(number)[0].trace_id)) == 3} == kept
        if work == "forget":
            store.forget(HERE)
            assert {scope.scope for scope in store.scopes()} == {THERE}
        assert store.check() == []
