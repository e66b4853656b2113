"""A program under examination whose set-up is right, and findings by name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memtrace_otel.doctor import Finding, ObservedProgram
from memtrace_otel.doctor.program import Exporter, Instrumentor, Package, SettingValue
from memtrace_otel.settings import CAPTURE_CONTENT
from memtrace_otel.version import __version__

MakeProgram = Callable[..., ObservedProgram]


@pytest.fixture
def program(tmp_path: Path) -> MakeProgram:
    """`program(field=value)`: a program without any problem, changed in these fields."""
    right = ObservedProgram(
        environ={},
        python=Path("/usr/bin/python3"),
        version=(3, 12, 1),
        packages={
            "memtrace-otel": Package(__version__, ["opentelemetry-sdk>=1.43,<2"]),
            "opentelemetry-sdk": Package("1.45.1", []),
            "mem0ai": Package("2.2.1", []),
        },
        instrumentors=[Instrumentor("memtrace_mem0", "memtrace-otel", ["mem0ai>=1.0,<3"], active=True)],
        settings={CAPTURE_CONTENT.name: SettingValue("SPAN_ONLY", "environment")},
        exporters=[Exporter("MemtraceSpanExporter", path=str(tmp_path / "memtrace.db"), spool=str(tmp_path / "spool"))],
        provider="opentelemetry.sdk.trace.TracerProvider",
        sdk=True,
    )

    def make(**changes: Any) -> ObservedProgram:
        return replace(right, **changes)

    return make


def one(findings: list[Finding], check: str) -> Finding:
    """Return the only finding of a check."""
    [found] = [finding for finding in findings if finding.check == check]
    return found
