"""The example of the guide: plain user code under opentelemetry-instrument."""

from __future__ import annotations

from pathlib import Path

from memtrace_otel.graph import VersionKey
from memtrace_otel.model import ref_kind
from tests.integration.example import run_example
from tests.integration.model_stub import DIMENSIONS, ModelStub, plain_reply


def test_the_example_is_recorded_from_message_to_answer(model: ModelStub, tmp_path: Path) -> None:
    model.script += [plain_reply, plain_reply, "In Lisbon."]
    environment = {
        "ASSISTANT_FOLDER": str(tmp_path),
        "EMBEDDING_DIMENSIONS": str(DIMENSIONS),
        "MEM0_DIR": str(tmp_path / "mem0"),
    }
    printed, graph = run_example("mem0_assistant.py", "mem0.md", model.url, tmp_path, environment)
    assert "In Lisbon." in printed
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
