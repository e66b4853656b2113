"""The example of the guide."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.integration.langchain.conftest import ChatStub, contents
from tests.integration.langchain.examples import run_example
from tests.integration.langmem.conftest import remembers


def test_the_slice_of_an_answer_has_delayed_memories(server: ChatStub, tmp_path: Path) -> None:
    replies: list[Any] = [
        remembers("Lives in Lisbon.", "Has a dog, Rex."),
        remembers("Is allergic to nuts."),
        "No nuts.",
    ]
    server.script = replies
    printed, graph = run_example("langmem_memories.py", "langmem.md", server, tmp_path)
    assert printed == ["2 memories", "No nuts."]
    [answer] = [span for span in graph.operations(kind="respond") if span.outputs]
    assert contents(graph, answer.origin, "memory") == {"Is allergic to nuts."}
    assert contents(graph, answer.origin, "fact") == {"Is allergic to nuts."}
    assert contents(graph, answer.origin, "message") == {"I am allergic to nuts."}
    assert len(graph.operations(kind="decide")) == 2
