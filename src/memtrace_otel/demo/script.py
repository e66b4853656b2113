"""The self-written story and what the scripted model says in it; the model server is the only reader of the faults.

`data/story.json` is what people say and ask, `data/script.json` the replies of a model that makes no mistake,
`data/faults.json` the mistakes planted into them. Turns and questions are joined by their ids.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from importlib.resources import files
from typing import Any


@dataclass(frozen=True, slots=True)
class Fault:
    """One planted mistake: its type, the question it spoils and, by type, the changed texts.

    `reply` replaces fields of the turn's or question's script; `ask` and `expected` replace those of the question.
    """

    type: str
    question: str
    note: str
    turn: str = ""
    ask: str = ""
    expected: str = ""
    reply: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Edit:
    """A wish of the model to change the first memory whose text holds `about`."""

    about: str
    add: str = ""
    change: Sequence[str] = ()
    text: str = ""
    delete: bool = False
    planted: bool = False

    def applied(self, memory: str) -> str:
        """Return the new text of a memory that is not deleted."""
        if self.change:
            old, new = self.change
            return memory.replace(old, new)
        return self.text or f"{memory} {self.add}"


@dataclass(frozen=True, slots=True)
class Turn:
    """What a user says, and what the model makes of it: the reply, the facts, the edits of older memories.

    `planted` tells that `facts` are not what a faultless model would extract.
    """

    id: str
    say: str
    reply: str
    facts: Sequence[str] = ()
    maintenance: Sequence[Edit] = ()
    planted: bool = False


@dataclass(frozen=True, slots=True)
class Question:
    """A question with its gold answer; `answers` are (text that must be in the prompt, what is said then)."""

    id: str
    user: str
    question: str
    expected: str
    answers: Sequence[tuple[str, str]] = ()
    otherwise: str = ""
    judgement: Mapping[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class Script:
    """Everything the model can be asked about in the story."""

    turns: Sequence[Turn]
    questions: Sequence[Question]


def load_json(name: str) -> Any:
    """Return the parsed package file `data/<name>`."""
    return json.loads(files("memtrace_otel.demo").joinpath("data", name).read_text("utf-8"))


def load_faults() -> list[Fault]:
    """Return the planted mistakes."""
    return [Fault(**fault) for fault in load_json("faults.json")]


def load_script(faults: Iterable[Fault] = ()) -> Script:
    """Return the script with `faults` planted; without any, every question is answered right."""
    story, replies, faults = load_json("story.json"), load_json("script.json"), list(faults)
    by_turn = {fault.turn: fault for fault in faults if fault.turn}
    by_question = {fault.question: fault for fault in faults if not fault.turn}
    said = [turn for conversation in story["conversations"] for turn in conversation["turns"]]
    return Script(
        turns=[_turn(turn, replies["turns"][turn["id"]], by_turn.get(turn["id"])) for turn in said],
        questions=[
            _question(question, replies["questions"][question["id"]], by_question.get(question["id"]))
            for question in story["questions"]
        ],
    )


def _turn(said: Mapping[str, str], reply: Mapping[str, Any], fault: Fault | None) -> Turn:
    changed = dict(fault.reply or {}) if fault else {}
    reply = {**reply, **changed}
    edits = [Edit(**edit) for edit in reply.pop("maintenance", ())]
    return Turn(**said, **reply, maintenance=edits, planted="facts" in changed)


def _question(asked: Mapping[str, str], reply: Mapping[str, Any], fault: Fault | None) -> Question:
    asked, reply = dict(asked), dict(reply)
    if fault:
        asked["question"] = fault.ask or asked["question"]
        asked["expected"] = fault.expected or asked["expected"]
        reply.update(fault.reply or {})
    answers = [(answer["if"], answer["say"]) for answer in reply.pop("answers")]
    return Question(**asked, **reply, answers=answers)
