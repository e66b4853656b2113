"""The example of the guide: plain user code under opentelemetry-instrument."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from memtrace_otel.graph import VersionKey, build_graph
from memtrace_otel.model import ref_kind
from memtrace_otel.store import SqliteStore
from tests.integration.model_stub import DIMENSIONS, ModelStub, plain_reply

GUIDE = Path(__file__).parents[3] / "docs" / "guide"
EXAMPLE = GUIDE / "examples" / "mem0_assistant.py"


def test_the_example_is_recorded_from_message_to_answer(model: ModelStub, tmp_path: Path) -> None:
    assert "memtrace" not in EXAMPLE.read_text()
    assert EXAMPLE.name in (GUIDE / "mem0.md").read_text()
    model.script += [plain_reply, plain_reply, "In Lisbon."]
    database = tmp_path / "memtrace.db"
    done = subprocess.run(
        [Path(sys.executable).with_name("opentelemetry-instrument"), sys.executable, EXAMPLE],
        env=os.environ
        | {
            "ASSISTANT_FOLDER": str(tmp_path),
            "EMBEDDING_DIMENSIONS": str(DIMENSIONS),
            "MEM0_DIR": str(tmp_path / "mem0"),
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
    assert "In Lisbon." in done.stdout.splitlines()
    with SqliteStore.open(database, create=False) as store:
        graph = build_graph(store.spans())
    (answer,) = graph.operations(kind="respond")
    sources = [
        node
        for node in graph.ancestors(VersionKey(answer.outputs[0].ref, answer.origin))
        if isinstance(node, VersionKey)
    ]
    assert {"message", "fact", "memory", "context", "query"} <= {ref_kind(node.ref) for node in sources}
    told = {graph.content(node) for node in sources if ref_kind(node.ref) == "message"}
    assert any("moved to Lisbon" in text for text in told)
    assert sum(ref_kind(node.ref) == "query" for node in sources) == 1
