"""The example of the guide: plain user code under opentelemetry-instrument."""

from __future__ import annotations

from pathlib import Path

from memtrace_otel.graph import VersionKey
from tests.integration.example import run_example
from tests.integration.llamaindex.conftest import RagModel


def test_the_example_is_recorded_from_note_to_answer(model: RagModel, tmp_path: Path) -> None:
    def reply(prompt: str) -> str:
        if "fact extraction system" in prompt:
            return "<facts><fact>The user is allergic to nuts</fact></facts>"
        return "No nuts." if "my food" in prompt else "On Saturday." if "Saturday" in prompt else "On Friday."

    model.script = [reply] * 20
    printed, graph = run_example("llamaindex_chat.py", "llamaindex.md", model.url, tmp_path)
    assert printed == ["On Friday.", "On Saturday.", "No nuts."]
    answers = [span for span in graph.operations(kind="respond") if span.outputs]
    assert [graph.content(VersionKey(s.outputs[0].ref, s.origin)) for s in answers] == printed

    def told(number: int) -> set[str]:
        answer = VersionKey(answers[number].outputs[0].ref, answers[number].origin)
        return {graph.content(node) for node in graph.ancestors(answer) if isinstance(node, VersionKey)}

    assert any("on Friday" in text for text in told(0))
    assert any("on Saturday" in text for text in told(1))
    assert "The user is allergic to nuts" in told(2)
    assert len(graph.operations(kind="delete")) == 1
