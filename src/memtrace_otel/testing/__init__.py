"""Contract suites for other people's stores and instrumentors; pytest runs them, the package does not import them."""

# ruff: noqa: E402
import pytest

pytest.register_assert_rewrite(
    *(f"memtrace_otel.testing.{name}" for name in ("harmless", "instrumentors", "lineage", "stores", "upkeep", "ways"))
)

from memtrace_otel.testing.harmless import HarmlessContract
from memtrace_otel.testing.instrumentors import InstrumentorContract
from memtrace_otel.testing.programs import AsyncProgram, ExploringProgram, Program, ReentrantProgram, StreamingProgram
from memtrace_otel.testing.spans import violations
from memtrace_otel.testing.stores import (
    DurableContract,
    Fill,
    FillRecords,
    RecordContract,
    SourceContract,
    StoreContract,
    contract_span,
)
from memtrace_otel.testing.ways import (
    CancelledContract,
    ReentrantContract,
    StreamedContract,
    SynchronousContract,
    ThreadedContract,
)

__all__ = [
    "AsyncProgram",
    "CancelledContract",
    "DurableContract",
    "ExploringProgram",
    "Fill",
    "FillRecords",
    "HarmlessContract",
    "InstrumentorContract",
    "Program",
    "RecordContract",
    "ReentrantContract",
    "ReentrantProgram",
    "SourceContract",
    "StoreContract",
    "StreamedContract",
    "StreamingProgram",
    "SynchronousContract",
    "ThreadedContract",
    "contract_span",
    "violations",
]
