"""Runs an example of the guides as a user would: plain code under opentelemetry-instrument."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from memtrace_otel.graph import EvolutionGraph, build_graph
from memtrace_otel.store import SqliteStore
from tests.integration import model_stub
from tests.integration.langchain.conftest import ChatStub

GUIDE = Path(__file__).parents[3] / "docs" / "guide"


def run_example(name: str, guide: str, server: ChatStub, folder: Path) -> tuple[list[str], EvolutionGraph]:
    """Return what the example printed, and the graph of what was recorded."""
    example = GUIDE / "examples" / name
    assert "memtrace" not in example.read_text()
    assert name in (GUIDE / guide).read_text()
    database = folder / "memtrace.db"
    done = subprocess.run(
        [Path(sys.executable).with_name("opentelemetry-instrument"), sys.executable, example],
        env=os.environ
        | {
            "OPENAI_BASE_URL": server.url,
            "OPENAI_API_KEY": "none",
            "DIMENSIONS": str(model_stub.DIMENSIONS),
            "ANONYMIZED_TELEMETRY": "False",
            "OTEL_TRACES_EXPORTER": "memtrace",
            "OTEL_METRICS_EXPORTER": "none",
            "OTEL_LOGS_EXPORTER": "none",
            "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT": "SPAN_ONLY",
            "MEMTRACE_DB": str(database),
        },
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    with SqliteStore.open(database, create=False) as store:
        return done.stdout.splitlines(), build_graph(store.spans())
