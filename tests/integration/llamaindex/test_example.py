"""The example of the guide: plain user code under opentelemetry-instrument."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from memtrace_otel.graph import VersionKey, build_graph
from memtrace_otel.store import SqliteStore
from tests.integration.llamaindex.conftest import RagModel

GUIDE = Path(__file__).parents[3] / "docs" / "guide"
EXAMPLE = GUIDE / "examples" / "llamaindex_chat.py"


def test_the_example_is_recorded_from_note_to_answer(model: RagModel, tmp_path: Path) -> None:
    assert "memtrace" not in EXAMPLE.read_text()
    assert EXAMPLE.name in (GUIDE / "llamaindex.md").read_text()

    def reply(prompt: str) -> str:
        if "fact extraction system" in prompt:
            return "<facts><fact>The user is allergic to nuts</fact></facts>"
        return "No nuts." if "my food" in prompt else "On Saturday." if "Saturday" in prompt else "On Friday."

    model.script = [reply] * 20
    database = tmp_path / "memtrace.db"
    done = subprocess.run(
        [Path(sys.executable).with_name("opentelemetry-instrument"), sys.executable, EXAMPLE],
        env=os.environ
        | {
            "OPENAI_BASE_URL": model.url,
            "OPENAI_API_KEY": "none",
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
    assert done.stdout.splitlines() == ["On Friday.", "On Saturday.", "No nuts."]
    with SqliteStore.open(database, create=False) as store:
        graph = build_graph(store.spans())
    answers = [span for span in graph.operations(kind="respond") if span.outputs]
    assert [graph.content(VersionKey(s.outputs[0].ref, s.origin)) for s in answers] == done.stdout.splitlines()

    def told(number: int) -> set[str]:
        answer = VersionKey(answers[number].outputs[0].ref, answers[number].origin)
        return {graph.content(node) for node in graph.ancestors(answer) if isinstance(node, VersionKey)}

    assert any("on Friday" in text for text in told(0))
    assert any("on Saturday" in text for text in told(1))
    assert "The user is allergic to nuts" in told(2)
    assert len(graph.operations(kind="delete")) == 1
