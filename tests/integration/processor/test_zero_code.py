"""`opentelemetry-instrument` alone puts the lossless processor in place."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from memtrace_otel.sources import SqliteStore

APPLICATION = """
import json, os
from opentelemetry import trace
provider = trace.get_tracer_provider()
with trace.get_tracer("application").start_as_current_span("work"):
    pass
group = getattr(provider, "_active_span_processor", None)
processors = getattr(group, "_span_processors", ())
print(json.dumps([[type(each).__name__, type(getattr(each, "exporter", each)).__name__] for each in processors]))
"""


def started(directory: Path, **environment: str) -> list[list[str]]:
    """Run the application under opentelemetry-instrument; return its processors and their exporters."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("OTEL_", "MEMTRACE_"))}
    environment = {
        "OTEL_TRACES_EXPORTER": "memtrace",
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_LOGS_EXPORTER": "none",
        "MEMTRACE_DB": str(directory / "a.db"),
        "MEMTRACE_SPOOL_DIR": str(directory / "spool"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{clean.pop('PATH', '')}",
    } | environment
    done = subprocess.run(
        ["opentelemetry-instrument", sys.executable, "-c", APPLICATION],
        env=clean | environment,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr
    return json.loads(done.stdout.splitlines()[0])


def test_the_batch_processor_is_ours(tmp_path: Path) -> None:
    assert started(tmp_path) == [["LosslessSpanProcessor", "MemtraceSpanExporter"]]
    with SqliteStore.open(tmp_path / "a.db", create=False) as store:
        assert [span.name for span in store.spans()] == ["work"]


def test_each_exporter_has_its_own(tmp_path: Path) -> None:
    names = ["ConsoleSpanExporter", "MemtraceSpanExporter"]
    found = started(tmp_path, OTEL_TRACES_EXPORTER="console,memtrace")
    assert found == [["LosslessSpanProcessor", name] for name in names]


@pytest.mark.parametrize(
    ("name", "value", "found"),
    [
        ("MEMTRACE_PROCESSOR", "stock", [["BatchSpanProcessor", "BatchSpanProcessor"]]),
        ("OTEL_TRACES_EXPORTER", "none", []),
    ],
)
def test_what_turns_it_off(tmp_path: Path, name: str, value: str, found: list[list[str]]) -> None:
    assert started(tmp_path, **{name: value}) == found


def test_a_disabled_sdk_stays_disabled(tmp_path: Path) -> None:
    started(tmp_path, OTEL_SDK_DISABLED="true")
    assert not (tmp_path / "a.db").exists()
