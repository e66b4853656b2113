"""The example of the guide runs as a user would run it, and costs the lines that the guide says."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from memtrace_otel.graph import VersionKey, build_graph
from memtrace_otel.model import ref_kind
from memtrace_otel.sources import SqliteStore
from tests.integration.model_stub import ModelStub

GUIDE = Path(__file__).parents[3] / "docs" / "guide" / "own-memory.md"
EXAMPLE = GUIDE.with_name("examples") / "own_memory.py"


def test_it_is_instrumented_in_as_many_lines_as_the_guide_says() -> None:
    lines = [line for line in EXAMPLE.read_text().splitlines() if line]
    marked = [line for line in lines if line.endswith("  #")]
    ours = [line for line in lines if "op." in line or "operation(" in line]
    guide = " ".join(GUIDE.read_text().split())
    assert f"A whole memory, instrumented in {len(marked)} lines" in guide
    assert f"The {len(marked)} of its {len(lines)} lines that are marked `#`" in guide
    assert len(marked) < 30
    assert {line for line in ours if '"""' not in line} <= set(marked)


def test_it_runs_and_its_answer_leads_to_the_newest_note(tmp_path: Path) -> None:
    database = tmp_path / "memtrace.db"
    with ModelStub() as model:
        model.script = ["Lisbon."]
        environment = os.environ | {"OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "none"}
        command = ["-m", "memtrace_otel.cli", "run", "--db", str(database), "--content", "--"]
        done = subprocess.run(
            [sys.executable, *command, sys.executable, str(EXAMPLE)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=120,
        )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "Lisbon."
    with SqliteStore.open(database, create=False) as store:
        graph = build_graph(store.spans())
    [answer] = graph.operations(kind="respond")
    slice_ = [node for node in graph.slice_of_answer(answer.origin) if isinstance(node, VersionKey)]
    said = {graph.content(node) for node in slice_ if ref_kind(node.ref) == "message"}
    assert "Ann lives in Lisbon." in said
    assert [version.ref for version in graph.history("memory:1")] == ["memory:1"] * 2
    [deleted] = graph.operations(kind="delete")
    assert [output.action for output in deleted.outputs] == ["DELETE"]
