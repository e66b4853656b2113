"""Every configuration of `collector/` is valid, alone and with its overlays, and starts."""

from __future__ import annotations

import subprocess
from itertools import chain
from pathlib import Path

import pytest

from tests.e2e.backends.service import installed, running
from tests.e2e.collector.processes import CONFIGURATIONS, Collector, flags

STARTED = [
    ("agent",),
    ("gateway",),
    ("gateway", "sampling"),
    ("gateway", "shards"),
    ("gateway", "sampling", "shards"),
    ("gateway", "kafka-producer"),
    ("gateway", "sampling", "kafka-producer"),
    ("kafka-consumer",),
    ("kafka-consumer", "shards"),
]


def test_none_is_forgotten() -> None:
    names = {path.stem for path in CONFIGURATIONS.glob("*.yaml")} - {"builder"}
    assert names == set(chain.from_iterable(STARTED))


@pytest.mark.parametrize("configurations", STARTED, ids="+".join)
def test_it_is_valid_and_starts(configurations: tuple[str, ...], tmp_path: Path) -> None:
    checked = subprocess.run(
        [installed("collector"), "validate", *flags(configurations)], capture_output=True, text=True, timeout=60
    )
    assert checked.returncode == 0, checked.stderr
    with running(Collector(tmp_path, *configurations)) as collector:
        assert "deprecated" not in collector.tail().lower()


def test_validation_can_fail(tmp_path: Path) -> None:
    wrong = tmp_path / "wrong.yaml"
    wrong.write_text("service: {pipelines: {traces/memory: {exporters: [nobody]}}}")
    checked = subprocess.run(
        [installed("collector"), "validate", *flags(["gateway"]), f"--config={wrong}"], capture_output=True, text=True
    )
    assert checked.returncode != 0
    assert "nobody" in checked.stderr
