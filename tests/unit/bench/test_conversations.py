"""Stories from a file in the shape of LoCoMo; the conversation is written for this test."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from memtrace_otel.bench import generate as generating
from memtrace_otel.bench.conversations import Conversations
from memtrace_otel.bench.faults import CODES
from memtrace_otel.bench.generate import Plan, make_case, read_truths
from memtrace_otel.bench.stories import Wording
from memtrace_otel.cli import main
from memtrace_otel.otlp import decode_request

THINGS = {  # message, fact, question, answer, category
    "canoe": ("I bought a canoe for 250 euros!", "Ida bought a canoe for 250 euros", "What did the canoe cost?",
              "250 euros", 4),
    "oboe": ("My oboe cost 900 euros.", "Ida has an oboe for 900 euros", "What did the oboe cost?", "900 euros", 4),
    "loom": ("A used loom, 75 euros only.", "Ole bought a used loom for 75 euros", "What did the loom cost?",
             "75 euros", 4),
    "choir": ("We sang with the choir yesterday.", "Ida sang with the choir", "When was Ida with the choir?",
              "4 March 2024", 2),
    "fair": ("I was at the fair last night.", "Ida was at the fair", "When was Ida at the fair?", "4 May 2024", 2),
    "race": ("The race at the fair was with the choir.", "Ole was in the race at the fair with the choir",
             "When was Ole in the race?", "May 2024", 2),
    "bike": ("I cycle to the mill each morning.", "Ida cycles to the mill", "How does Ida get to the mill?",
             "riding 2 wheels", 4),
    "bake": ("I bake rye loaves at home.", "Ida bakes rye loaves at home", "What does Ida do at home?",
             "1 kitchen craft", 4),
    "fish": ("I sit at the pond when I get to the mill.", "Ole sits at the pond to the mill at home",
             "What does Ole do at the pond?", "3 catfish", 4),
    "kiln": ("My kiln cost 600 euros.", "Ida has a kiln for 600 euros", "What did the kiln cost?", "600 euros", 4),
    "tent": ("I sold my tent for 40 euros.", "Ole sold a tent for 40 euros", "What did the tent cost?", "40 euros", 4),
}  # fmt: skip
MONTHS = ("January", "March", "May", "July", "September", "November")
SESSIONS = len(MONTHS)


def conversation() -> dict[str, Any]:
    """Sessions in which both speakers tell their things, with small talk between them."""
    told: dict[str, Any] = {"speaker_a": "Ida", "speaker_b": "Ole"}
    facts, asked, things = {}, [], list(THINGS.items())
    for number in range(1, SESSIONS + 1):
        messages, seen = [], {"Ida": [], "Ole": []}

        def say(speaker: str, text: str, fact: str = "") -> str:
            name = f"D{number}:{len(messages) + 1}"  # noqa: B023
            messages.append({"speaker": speaker, "dia_id": name, "text": text})  # noqa: B023
            if fact:
                seen[speaker].append([fact, name])  # noqa: B023
            return name

        for _, (text, fact, question, answer, category) in things[2 * (number - 1) : 2 * number]:
            place = say(fact.partition(" ")[0], text, fact)
            asked.append({"question": question, "answer": answer, "evidence": [place], "category": category})
        for line in range(4):
            say("Ida", f"The weather of day {number}.{line} was grey.", f"Ida saw grey weather {number}.{line}")
            say("Ole", f"Number {number}{line} of my stamps arrived.", f"Ole got stamp {number}{line}")
        told |= {
            f"session_{number}": messages,
            f"session_{number}_date_time": f"9:15 am on 5 {MONTHS[number - 1]}, 2024",
        }
        facts[f"session_{number}_observation"] = seen
    asked.append({"question": "What is the name of her horse?", "evidence": ["D1:1"], "category": 5})
    return {"conversation": told, "observation": facts, "qa": asked, "sample_id": "own"}


@pytest.fixture(scope="module")
def stories(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("stories") / "own.json.gz"
    path.write_bytes(gzip.compress(json.dumps(conversation()).encode(), mtime=0))
    return path


def test_every_fault_but_those_of_corrections_is_admitted(stories: Path) -> None:
    plan = Plan(2, 1, stories=str(stories), messages=(36, 40))
    combinations = plan.combinations()
    assert {code for _, code, _ in combinations} == set(CODES) - {"U3", "U4"}
    assert len(combinations) == 2 * (len(CODES) - 3) + 1  # without an answer there is one wording
    numbers = {plan.case(number)[1]: number for number in range(len(combinations))}
    for number in numbers.values():
        case = make_case(plan, number)
        spans = decode_request(case.request)
        assert case.truth["template"] == "conversation"
        assert set(case.truth["operations"]) <= {span.origin for span in spans}
        assert any("stamps arrived" in variable.content for span in spans for variable in span.inputs)


def test_a_question_is_used_if_its_message_tells_the_answer(stories: Path) -> None:
    used = {question.text: question for question in Conversations(stories).all[0].questions}
    things = {name: used.get(question) for name, (_, _, question, _, _) in THINGS.items()}
    assert [name for name, question in things.items() if question is None] == ["bike", "bake", "fish"], "other words"
    told = {name: (question.value.answer, question.value.slip, question.fact) for name, question in things.items()
            if question and question.wording is Wording.DATE}  # fmt: skip
    assert told["choir"] == ("4 March 2024", "14 March 2024", "Ida sang with the choir (4 March 2024)")
    assert told["race"][1] == "May 2025"


def test_the_commands_take_a_file(stories: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def generate(file: Path, out: str) -> Any:
        return CliRunner().invoke(
            main, ["bench", "generate", "--out", str(tmp_path / out), "--stories", str(file), "--cases", "3"]
        )

    assert generate(stories, "cases").exit_code == 0
    assert len(read_truths(tmp_path / "cases")) == 3
    with monkeypatch.context() as none:
        none.setattr(generating, "_refused", lambda *case: "right with the fault")
        left = generate(stories, "none")
    assert (left.exit_code, left.stdout) == (0, f"0 new cases in {tmp_path / 'none'}\n")
    assert "left out 3 cases that the conversations do not hold, as case 0 (" in left.stderr
    other = tmp_path / "other.json"
    other.write_text('{"messages": []}')
    refused = generate(other, "refused")
    assert refused.exit_code == 2
    assert "no conversations in the shape of LoCoMo" in refused.stderr
    assert not (tmp_path / "refused").exists()
