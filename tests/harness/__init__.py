"""Contract suites for our instrumentors: the public contract, fault injection, ways of calling a system."""

# ruff: noqa: E402
import pytest

pytest.register_assert_rewrite(*(f"tests.harness.{name}" for name in ("harmless", "ways")))

from tests.harness.harmless import HarmlessContract, InstrumentorContract
from tests.harness.ways import (
    CancelledContract,
    ReentrantContract,
    StreamedContract,
    SynchronousContract,
    ThreadedContract,
)

__all__ = [
    "CancelledContract",
    "HarmlessContract",
    "InstrumentorContract",
    "ReentrantContract",
    "StreamedContract",
    "SynchronousContract",
    "ThreadedContract",
]
