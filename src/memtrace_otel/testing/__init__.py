"""Contract suites for instrumentors and trace sources, to be run by pytest."""

# ruff: noqa: E402
import pytest

pytest.register_assert_rewrite(*(f"memtrace_otel.testing.{name}" for name in ("instrumentors", "lineage", "sources")))

from memtrace_otel.testing.instrumentors import InstrumentorContract
from memtrace_otel.testing.programs import Program
from memtrace_otel.testing.sources import Fill, RecordContract, SourceContract, contract_span
from memtrace_otel.testing.spans import violations

__all__ = [
    "Fill",
    "InstrumentorContract",
    "Program",
    "RecordContract",
    "SourceContract",
    "contract_span",
    "violations",
]
