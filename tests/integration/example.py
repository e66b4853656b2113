"""Runs an example of the guides as a user would: plain code under opentelemetry-instrument."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from memtrace_otel.graph import EvolutionGraph, build_graph
from memtrace_otel.sources import SqliteStore

GUIDE = Path(__file__).parents[2] / "docs" / "guide"


def run_example(
    name: str,
    guide: str,
    url: str,
    folder: Path,
    environment: Mapping[str, str] | None = None,
    through: Sequence[str] = (),
) -> tuple[list[str], EvolutionGraph]:
    """Return what an example printed, and the graph of what was recorded. `url` is that of the model server, `through`
    are arguments for Python in front of the example's path."""
    example = GUIDE / "examples" / name
    assert "memtrace" not in example.read_text()
    assert name in (GUIDE / guide).read_text()
    database = folder / "memtrace.db"
    done = subprocess.run(
        [Path(sys.executable).with_name("opentelemetry-instrument"), sys.executable, *through, example],
        env=os.environ
        | {
            "OPENAI_BASE_URL": url,
            "OPENAI_API_KEY": "none",
            "OTEL_TRACES_EXPORTER": "memtrace",
            "OTEL_METRICS_EXPORTER": "none",
            "OTEL_LOGS_EXPORTER": "none",
            "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY",
            "MEMTRACE_DB": str(database),
        }
        | dict(environment or {}),
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    with SqliteStore.open(database, create=False) as store:
        return done.stdout.splitlines(), build_graph(store.spans())
