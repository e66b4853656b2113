"""The example of the guide."""

from __future__ import annotations

from pathlib import Path

from tests.integration.langchain.conftest import ChatStub, contents
from tests.integration.langchain.examples import run_example


def test_the_agent_answers_from_its_newest_memory(server: ChatStub, tmp_path: Path) -> None:
    def reply(prompt: str) -> str:
        known, asked = prompt.splitlines()[1], prompt.splitlines()[-1]
        return "On Saturday." if "Saturday" in known and "?" in asked else "Noted."

    server.script = [reply] * 4
    printed, graph = run_example("langgraph_agent.py", "langgraph.md", server, tmp_path)
    assert printed == ["On Saturday.", "4 messages in the thread"]
    answer = max((span for span in graph.operations(kind="respond") if span.outputs), key=lambda span: span.start)
    assert "My train leaves on Saturday." in contents(graph, answer.origin, "memory")
    history = graph.history("memory:users/ana/train")
    assert [graph.content(version) for version in history] == [
        "My train leaves on Friday.",
        "My train leaves on Saturday.",
    ]
    trims = [span for span in graph.operations(kind="delete") if span.system == "langgraph"]
    trimmed = [output for span in trims for output in span.outputs]
    assert len(trimmed) == 4
    assert {output.ref.partition(":")[0] for output in trimmed} == {"state"}
