"""Contract suites for other people's stores and instrumentors; pytest runs them, the package does not import them."""

from memtrace_otel.testing.instrumentors import (
    AsyncProgram,
    InstrumentorContract,
    Program,
    StreamedContract,
    StreamingProgram,
    ThreadedContract,
)
from memtrace_otel.testing.spans import violations
from memtrace_otel.testing.stores import Fill, SourceContract, StoreContract, UpkeepContract, contract_span

__all__ = [
    "AsyncProgram",
    "Fill",
    "InstrumentorContract",
    "Program",
    "SourceContract",
    "StoreContract",
    "StreamedContract",
    "StreamingProgram",
    "ThreadedContract",
    "UpkeepContract",
    "contract_span",
    "violations",
]
