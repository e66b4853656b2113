"""A real langmem as a subject of repair: a model that keeps quantities only when the instructions ask for them."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from memtrace_otel.repair.running import Runner, is_right
from memtrace_otel.repair.systems import Langmem
from tests.integration.langchain.conftest import ChatStub
from tests.integration.langmem.conftest import remembers
from tests.unit.repair.simulator import answer, conversations, vague


class PromptStub(ChatStub):
    """The model of the simulator, with the tool calls of langmem."""

    def reply(self, prompt: str) -> str:
        said = re.search(r"Human Message =+\n\n(.*?)\n</session", prompt, re.DOTALL)
        if said:
            return json.dumps(remembers(vague(said.group(1), prompt[: said.start()])))
        system, _, question = prompt.rpartition("\n")
        return answer(system, question)


def test_a_defect_of_the_instructions_is_blamed_and_better_instructions_repair_the_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"OPENAI_API_KEY": "none", "no_proxy": "127.0.0.1"}.items():
        monkeypatch.setenv(name, value)
    case = conversations(["quantities", "plain"], count=1, questions=2)[0]
    with PromptStub() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        subject = Langmem("m", "Keep what the user tells.", answer="Use the exact words.\n{memories}")
        runner = Runner(subject, is_right, tmp_path / "outcomes.jsonl")
        used = dict(subject.components())
        outcome = runner.run(used, case)
        assert (outcome.right, outcome.component) == (False, "extraction prompt"), outcome
        assert "quantities" in outcome.feedback["next step"]
        assert (outcome.spent.calls, outcome.spent.tokens) == (11, 14)  # 3 chat calls as raw responses, 8 embeddings
        repaired = runner.run({**used, outcome.component: f"{used[outcome.component]} Keep quantities."}, case)
        assert repaired.right, repaired
