"""Contract suites for our own instrumentors: the public ones, broken hooks, ways of calling a system."""

# ruff: noqa: E402
import pytest

pytest.register_assert_rewrite(*(f"tests.harness.{name}" for name in ("contract", "harmless", "ways")))

from memtrace_otel.testing import (
    AsyncProgram,
    ExploringProgram,
    Program,
    ReentrantProgram,
    StreamingProgram,
    violations,
)
from tests.harness.contract import InstrumentorContract
from tests.harness.harmless import HarmlessContract
from tests.harness.ways import (
    CancelledContract,
    ReentrantContract,
    StreamedContract,
    SynchronousContract,
    ThreadedContract,
)

__all__ = [
    "AsyncProgram",
    "CancelledContract",
    "ExploringProgram",
    "HarmlessContract",
    "InstrumentorContract",
    "Program",
    "ReentrantContract",
    "ReentrantProgram",
    "StreamedContract",
    "StreamingProgram",
    "SynchronousContract",
    "ThreadedContract",
    "violations",
]
