"""kill -9 and a full disk at every write that the store makes: what was acknowledged is there, and the work goes on."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.integration.sources.works import WORKS

ROOT = Path(__file__).parents[3]
MEMORY = "/dev/shm"
"""Where there is one: what a killed process has written is safe from it without a disk, which is slow to sync."""


@pytest.mark.parametrize("fault", ["kill", "torn", "full"])
@pytest.mark.parametrize("work", WORKS)
def test_nothing_is_lost_at_any_write(fault: str, work: str) -> None:
    with TemporaryDirectory(dir=MEMORY if os.access(MEMORY, os.W_OK) else None) as folder:
        command = [sys.executable, "-m", "tests.integration.sources.faults", fault, work, folder]
        done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    outcome = json.loads(done.stdout)
    assert outcome["faults"] == []
    assert outcome["writes"] >= 4  # a commit is at least the frames of its page, twice
