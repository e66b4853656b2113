"""`compact` where the disk has less room than it needs: what was free is free again, and the rest goes on."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from memtrace_otel.sources import SqliteStore, StoreError
from tests.integration.sources.works import life, request

TRACES = range(1, 61)
BYTES = 32_000
"""Of a trace: the file has two megabytes, and nearly as many when it is packed."""


def make(path: Path) -> None:
    with SqliteStore.open(path) as store:
        store.add_requests([request(n, size=BYTES) for n in TRACES])
        store.decode()


def is_all_there(path: Path) -> bool:
    with SqliteStore.open(path) as store:
        return store.check() == [] and all(store.trace(life(n)[0].trace_id) == life(n, size=BYTES) for n in TRACES)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Callable[[int], None]]:
    """A file system of its own at `tmp_path`, in memory: only root may make one. Returns what leaves so much free."""
    mount = shutil.which("mount")
    if os.geteuid() or not mount:
        pytest.skip("a small disk needs root")
    made = subprocess.run([mount, "-t", "tmpfs", "-o", "size=16M", "tmpfs", str(tmp_path)], capture_output=True)
    if made.returncode:
        pytest.skip("a small disk cannot be mounted here")

    def leave(room: int) -> None:
        (tmp_path / "other").write_bytes(bytes(free(tmp_path) - room))

    try:
        yield leave
    finally:
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)


def free(folder: Path) -> int:
    return shutil.disk_usage(folder).free


@pytest.mark.parametrize("room", [200_000, 1_200_000, 1_800_000, 2_500_000])
def test_a_compact_without_room_leaves_what_was_free(tmp_path: Path, disk: Callable[[int], None], room: int) -> None:
    path = tmp_path / "a.db"
    make(path)
    disk(room)
    with SqliteStore.open(path) as store, pytest.raises(StoreError, match=r"full|No space"):
        store.compact()
    assert free(tmp_path) > room - 100_000
    assert is_all_there(path)
    (tmp_path / "other").unlink()
    with SqliteStore.open(path) as store:
        assert store.compact().finished
