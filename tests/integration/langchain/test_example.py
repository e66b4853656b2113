"""The example of the guide."""

from __future__ import annotations

from pathlib import Path

from tests.integration.langchain.conftest import ChatStub, contents
from tests.integration.langchain.examples import run_example


def test_each_answer_reads_the_version_of_its_time(server: ChatStub, tmp_path: Path) -> None:
    def reply(prompt: str) -> str:
        notes, _, question = prompt.partition("Question:")
        if "oven" in question and "oven" not in notes:
            return "Nobody knows."
        return "On Friday." if "Friday" in notes else "On Saturday."

    server.script = [reply] * 3
    printed, graph = run_example("langchain_rag.py", "langchain.md", server, tmp_path)
    assert printed == ["On Friday.", "On Saturday.", "Nobody knows."]
    answers = [span for span in graph.operations(kind="respond") if span.outputs]
    friday, saturday, unknown = sorted(answers, key=lambda span: span.start)
    assert contents(graph, friday.origin, "query") == {"When does the night train take Ana to Lisbon?"}
    assert contents(graph, friday.origin, "chunk") == {"Ana takes the night train to Lisbon on Friday."}
    assert "Ana takes the night train to Lisbon on Saturday." in contents(graph, saturday.origin, "chunk")
    assert not any("oven" in text for text in contents(graph, unknown.origin, "chunk"))
    assert [graph.is_tombstone(version) for version in graph.history("chunk:kitchen-0")] == [False, True]
    assert len(graph.history("chunk:travel-0")) == 2
