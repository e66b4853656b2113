"""`serve` on a full disk, and two servers on one file: every acknowledged span is in the file."""

from __future__ import annotations

import json
import resource
import subprocess
from pathlib import Path
from urllib.error import HTTPError

from memtrace_otel.sources import SqliteStore
from tests.integration.serve.conftest import Server, Start
from tests.integration.sources.lives import life, request

SMALL, LARGE = 600_000, 64 << 20


def health(server: Server) -> dict[str, object]:
    try:
        return json.loads(server.get("/health"))
    except HTTPError as refused:
        return json.load(refused)


def children(pid: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True)
    return [int(word) for word in found.stdout.split()]


def limit_files(server: Server, size: int) -> None:
    """Bound the size of every file that the server writes: a full disk for it."""
    for pid in (server.process.pid, *children(server.process.pid)):
        resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def test_every_acknowledged_request_is_kept_on_a_full_disk(start: Start) -> None:
    server = start()
    limit_files(server, SMALL)
    kept: set[int] = set()
    refused: set[tuple[int, str]] = set()
    for n in range(1, 61):
        status, _, headers = server.post("/v1/traces", request(n, size=20_000))
        if status == 200:
            kept.add(n)
        else:
            refused.add((status, headers["retry-after"]))
            assert status == 429 or health(server)["status"] == "unwritable"
    assert 0 < len(kept) < 60
    assert all(status in (429, 503) and int(retry) > 0 for status, retry in refused), refused
    limit_files(server, LARGE)
    server.until(lambda: server.post("/v1/traces", request(100))[0] == 200, 30)
    server.until(lambda: health(server)["status"] == "ok")
    assert server.terminate() == 0
    assert spans_in(server.database) >= {span.origin for n in (*kept, 100) for span in life(n, size=20_000)}


def test_two_servers_on_one_file_keep_all_acknowledged_requests(tmp_path: Path, start: Start) -> None:
    database = tmp_path / "spans.db"
    servers = start(database=database), start(database=database)
    kept: set[int] = set()
    for n in range(1, 81):
        status, _, headers = servers[n % 2].post("/v1/traces", request(n))
        if status == 200:
            kept.add(n)
        else:
            assert (status, int(headers["retry-after"]) > 0) == (503, True)
    servers[0].kill()
    assert servers[1].post("/v1/traces", request(81))[0] == 200
    assert servers[1].terminate() == 0
    assert len(kept) > 40
    assert spans_in(database) == {span.origin for n in (*kept, 81) for span in life(n)}


def spans_in(database: Path) -> set[str]:
    with SqliteStore.open(database, create=False) as store:
        found = {span.origin for span in store.spans()}
        assert store.check() == []
        assert store.stats().spans == len(found)
        assert store.quarantined() == []
    return found
