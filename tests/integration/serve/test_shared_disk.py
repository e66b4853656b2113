"""`serve` on a full disk, and two servers on one file: every acknowledged span is in the file."""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.error import HTTPError

import pytest

from memtrace_otel.sources import SqliteStore
from tests.integration.serve.conftest import Server, Start
from tests.integration.sources.lives import life, request

SMALL, LARGE = 600_000, 64 << 20


Room = Callable[[Server], None]


@contextmanager
def limited_files(folder: Path) -> Iterator[tuple[Path, Room, Room]]:
    """No file of the server may grow past a size: every system has that."""

    def limit(server: Server, size: int) -> None:
        for pid in (server.process.pid, *children(server.process.pid)):
            resource.prlimit(pid, resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

    yield folder, lambda server: limit(server, SMALL), lambda server: limit(server, LARGE)


@contextmanager
def small_disk(folder: Path) -> Iterator[tuple[Path, Room, Room]]:
    """A file system of its own, in memory: only root may make one."""
    mount = shutil.which("mount")
    if os.geteuid() or not mount:
        pytest.skip("a small disk needs root; the limited files stand for it")
    made = subprocess.run([mount, "-t", "tmpfs", "-o", f"size={SMALL}", "tmpfs", str(folder)], capture_output=True)
    if made.returncode:
        pytest.skip("a small disk cannot be mounted here; the limited files stand for it")

    def grow(_: Server) -> None:
        subprocess.run([mount, "-o", f"remount,size={LARGE}", str(folder)], check=True)

    try:
        yield folder, lambda _: None, grow
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def health(server: Server) -> dict[str, object]:
    try:
        return json.loads(server.get("/health"))
    except HTTPError as refused:
        return json.load(refused)


def children(pid: int) -> list[int]:
    found = subprocess.run(["pgrep", "-P", str(pid)], capture_output=True, text=True)
    return [int(word) for word in found.stdout.split()]


@pytest.mark.parametrize("disk", [limited_files, small_disk])
def test_every_acknowledged_request_is_kept_on_a_full_disk(
    tmp_path: Path, start: Start, disk: Callable[..., Iterator[tuple[Path, Room, Room]]]
) -> None:
    with disk(tmp_path) as (folder, fill, grow):  # type: ignore[attr-defined]
        database = folder / "spans.db"
        server = start(database=database)
        fill(server)
        kept: set[int] = set()
        refused: set[tuple[int, str]] = set()
        for n in range(1, 61):
            status, _, headers = server.post("/v1/traces", request(n, size=20_000))
            if status == 200:
                kept.add(n)
            else:
                refused.add((status, headers["retry-after"]))
                assert status == 429 or health(server)["status"] == "unwritable"
        assert kept
        assert len(kept) < 60
        assert all(status in (429, 503) and int(retry) > 0 for status, retry in refused), refused
        assert refused
        grow(server)
        deadline = time.monotonic() + 30
        while server.post("/v1/traces", request(100))[0] != 200:
            assert time.monotonic() < deadline, "the server does not recover"
            time.sleep(0.1)
        assert health(server)["status"] == "ok"
        assert server.terminate() == 0
        assert spans_in(database) >= {span.origin for n in (*kept, 100) for span in life(n, size=20_000)}


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
