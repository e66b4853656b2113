"""Every configuration of `collector/` is valid, alone and with its overlays, and starts."""

from __future__ import annotations

import re
from itertools import chain
from pathlib import Path

import pytest

from tests.e2e.backends.collector import complaints
from tests.e2e.backends.service import running
from tests.e2e.collector.processes import CONFIGURATIONS, Collector, flags

STARTED = [
    ("agent", "redaction"),
    ("gateway", "redaction"),
    ("gateway", "redaction", "sampling"),
    ("gateway", "redaction", "shards"),
    ("gateway", "redaction", "sampling", "shards"),
    ("gateway", "redaction", "kafka-producer"),
    ("gateway", "redaction", "sampling", "kafka-producer"),
    ("kafka-consumer",),
    ("kafka-consumer", "shards"),
]


@pytest.fixture(autouse=True)
def gateway(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_OTLP", "127.0.0.1:1")


def test_none_is_forgotten() -> None:
    names = {path.stem for path in CONFIGURATIONS.glob("*.yaml")} - {"builder"}
    assert names == set(chain.from_iterable(STARTED))


@pytest.mark.parametrize("configurations", STARTED, ids="+".join)
def test_it_is_valid_and_starts(configurations: tuple[str, ...], tmp_path: Path) -> None:
    assert complaints(*flags(configurations)) == ""
    with running(Collector(tmp_path, *configurations)) as collector:
        assert "deprecated" not in collector.tail().lower()


@pytest.mark.parametrize("name", ["agent", "gateway"])
def test_none_starts_without_redaction(name: str) -> None:
    told = complaints(*flags([name]))  # of one of both
    assert re.search('references processor "(redaction|transform/contents)" which is not configured', told)


def test_an_agent_does_not_start_before_its_gateway_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would pass the gateway by: the usual ports are those of other parts."""
    monkeypatch.delenv("GATEWAY_OTLP")
    assert 'otlp_grpc/gateway: requires a non-empty "endpoint"' in complaints(*flags(["agent", "redaction"]))


def test_a_damaged_queue_keeps_it_from_starting_until_its_folder_is_moved_away(tmp_path: Path) -> None:
    """What the README says: the folders are independent, and a new one is made."""
    collector = Collector(tmp_path, "gateway", "redaction")
    with running(collector):
        pass
    folder = tmp_path / "collector-queues" / "memory"
    files = [*folder.iterdir()]
    for file in files:
        file.write_bytes(b"x" * file.stat().st_size)
    with pytest.raises(AssertionError, match="invalid database"):
        collector.start()
    folder.rename(tmp_path / "damaged")
    with running(collector):
        assert {file.name for file in folder.iterdir()} == {file.name for file in files} != set()
