"""A clean environment for programs under examination, and findings by name."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from memtrace_otel.doctor import Finding, examine

Examine = Callable[..., list[Finding]]


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    """What a program needs to be recorded with contents into `tmp_path`; nothing of the machine that runs the tests."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "MEMTRACE_"))}
    return kept | {
        "OTEL_TRACES_EXPORTER": "memtrace",
        "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY",
        "MEMTRACE_DB": str(tmp_path / "memtrace.db"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
    }


@pytest.fixture
def doctor(environ: dict[str, str]) -> Examine:
    """`doctor(VARIABLE="value", OTHER=None)`: the findings in an environment changed like this (None: unset)."""

    def look(python: Path = Path(sys.executable), **changes: str | None) -> list[Finding]:
        changed = {**environ, **changes}
        return examine(python, {name: value for name, value in changed.items() if value is not None})

    return look


def one(findings: list[Finding], check: str) -> Finding:
    """The only finding of a check."""
    [found] = [finding for finding in findings if finding.check == check]
    return found
