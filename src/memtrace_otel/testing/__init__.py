"""Contract suites for trace sources and instrumentors of other people; pytest runs the suites."""

# ruff: noqa: E402
import pytest

pytest.register_assert_rewrite(*(f"memtrace_otel.testing.{name}" for name in ("instrumentors", "lineage", "stores")))

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

__all__ = [
    "AsyncProgram",
    "DurableContract",
    "ExploringProgram",
    "Fill",
    "FillRecords",
    "InstrumentorContract",
    "Program",
    "RecordContract",
    "ReentrantProgram",
    "SourceContract",
    "StoreContract",
    "StreamingProgram",
    "contract_span",
    "violations",
]
