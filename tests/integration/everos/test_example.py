"""The example of the guide: plain user code under opentelemetry-instrument."""

from __future__ import annotations

from pathlib import Path

from memtrace_otel.graph import VersionKey
from memtrace_otel.model import ref_kind
from tests.integration.everos.models import EverosModels
from tests.integration.example import run_example

ROOT = Path(__file__).parents[3]
OFFLINE = """
import runpy, sys
from tests.integration.everos.tokens import use_bytes
use_bytes()
runpy.run_path(sys.argv[1], run_name="__main__")
"""


def test_the_example_is_recorded_from_diary_to_answer(models: EverosModels, tmp_path: Path) -> None:
    models.by_kind[""] = ["In Lisbon."]
    environment = {"PYTHONPATH": str(ROOT), "EVEROS_ROOT": str(tmp_path)}
    printed, graph = run_example(
        "everos_diary.py", "everos.md", models.url, tmp_path, environment, through=("-c", OFFLINE)
    )
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
