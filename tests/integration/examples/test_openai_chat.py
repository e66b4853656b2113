"""The chat example: plain user code under opentelemetry-instrument."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from memtrace_otel.graph import build_graph
from memtrace_otel.sources import SqliteStore
from tests.integration.model_stub import ModelStub

EXAMPLE = Path(__file__).parents[3] / "docs" / "guide" / "examples" / "openai_chat.py"


def test_what_the_chat_trims_is_deleted(tmp_path: Path) -> None:
    assert "memtrace" not in EXAMPLE.read_text()
    database = tmp_path / "memtrace.db"
    with ModelStub() as model:
        model.script = ["Nice name.", "A fine city.", "Early mornings.", "I do not know."]
        command = ["-m", "memtrace_otel.cli", "run", "--db", str(database), "--content", "--", sys.executable]
        done = subprocess.run(
            [sys.executable, *command, str(EXAMPLE)],
            env=os.environ | {"OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "none"},
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert done.returncode == 0, done.stderr
    with SqliteStore.open(database, create=False) as store:
        graph = build_graph(store.spans())
    gone = {
        graph.content(read.version) for span in graph.operations(kind="delete") for read in graph.inputs(span.origin)
    }
    assert "My cat is called Tom." in gone
    answer = graph.operations(kind="respond")[-1]
    assert "My cat is called Tom." not in {graph.content(read.version) for read in graph.inputs(answer.origin)}
