"""A real Mem0 1.x as a subject of repair: its own prompts, a model whose behaviour depends on the prompts."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import pytest

from memtrace_otel.demo.model_server import serving
from memtrace_otel.repair.running import Runner, is_right
from memtrace_otel.repair.systems import Mem0V1
from tests.unit.repair.simulator import PromptModel, conversations

pytestmark = pytest.mark.skipif(not version("mem0ai").startswith("1."), reason="the prompts of Mem0 1.x")


@pytest.mark.parametrize(
    ("kind", "blamed", "options"),
    [
        ("quantities", "extraction prompt", {}),
        ("updated", "update prompt", {"extraction": 'Keep quantities. Reply in JSON: {"facts": ["..."]}'}),
    ],
)
def test_a_defect_of_its_prompts_is_blamed_and_a_better_prompt_repairs_the_answer(
    kind: str, blamed: str, options: Mapping[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"OPENAI_API_KEY": "none", "no_proxy": "127.0.0.1", "MEM0_TELEMETRY": "False"}.items():
        monkeypatch.setenv(name, value)
    case = conversations([kind, "plain"], count=1, questions=2)[0]
    with serving(PromptModel()) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.base_url)
        subject = Mem0V1("m", answer="Use the exact words.\n{memories}", **options)
        runner = Runner(subject, is_right, tmp_path / "outcomes.jsonl")
        used = dict(subject.components())
        outcome = runner.run(used, case)
        assert (outcome.right, outcome.component) == (False, blamed), outcome
        repaired = runner.run({**used, blamed: f"{used[blamed]}\nKeep quantities as they are said."}, case)
        assert repaired.right, repaired
