"""A model whose replies depend on the prompts that it is given, and conversations with questions.

What the model does:

- It extracts each sentence of a message as a fact. Quantities, dates and names become vague, unless the instructions
  ask for them by these words.
- Asked for an update (Mem0 1.x), it lets a fact replace the record about the same thing of the same owner. The record
  is lost, unless the prompt says "Keep quantities".
- It answers with the memory of the prompt that shares most words with the question. The answer is vague, unless the
  prompt asks for exact words. Without a memory, it answers "Everything is fine.", unless the prompt says
  "I do not know".
- Asked to rewrite a text, it follows the next steps of the examples. Without next steps, it sees which kind of
  information is expected, and not where that was lost: it adds what it would add to this component.
"""

from __future__ import annotations

import json
import re
from ast import literal_eval
from collections.abc import Callable, Mapping, Sequence
from random import Random

from memtrace_otel.demo.embedding import words
from memtrace_otel.repair.subjects import Case

VAGUE: Mapping[str, tuple[str, str]] = {
    "quantities": (r"\b\d+ (?=boxes|chairs|lamps|litres)", "some "),
    "dates": (r"\bon \d+ \w+ 20\d\d", "soon"),
    "names": (r"\bis called \w+", "has a name"),
}
"""Kinds of information: what carries the kind in a sentence, and what becomes of it."""
Rewrite = Callable[[str, str], str]
"""What a poisoned reflection makes of the text in use and the right new text."""


def vague(text: str, kept: str) -> str:
    """The text without the kinds of information that `kept` does not name."""
    for kind, (carrier, instead) in VAGUE.items():
        if kind not in kept:
            text = re.sub(carrier, instead, text)
    return text


class PromptModel:
    """The model. `poison` changes what it answers when it is asked to rewrite a text."""

    def __init__(self, poison: Rewrite | None = None) -> None:
        self.poison = poison
        self.reflections = 0

    def reply(self, messages: Sequence[Mapping[str, str]]) -> str:
        system = "\n".join(m["content"] for m in messages if m["role"] == "system")
        prompt = messages[-1]["content"]
        if prompt.startswith("You improve one component"):
            return self._reflect(prompt)
        if "## New Messages" in prompt:  # Mem0 2.x
            said = prompt.partition("## New Messages\n")[2].partition("\n## ")[0]
            asked = prompt.partition("## Custom Instructions")[2]
            texts = [vague(text, asked) for text in sentences(said.replace("user: ", ""))]
            return json.dumps({"memory": [{"id": str(i), "text": text} for i, text in enumerate(texts)]})
        if '"facts"' in system:
            said = prompt.removeprefix("Input:\n").replace("user: ", "")
            return json.dumps({"facts": [vague(text, system) for text in sentences(said)]})
        if "new retrieved facts" in prompt:  # Mem0 1.x
            return json.dumps({"memory": updates(prompt)})
        return answer(system, prompt)

    def _reflect(self, prompt: str) -> str:
        self.reflections += 1
        text = prompt.partition("<text>\n")[2].partition("\n</text>")[0]
        examples = json.loads(prompt.partition("<examples>\n")[2].partition("\n</examples>")[0])
        steps = [example.get("next step", "") for example in examples]
        new = improved(text, steps) if any(steps) else guessed(text, examples)
        return f"Here it is.\n<text>\n{self.poison(text, new) if self.poison else new}\n</text>"


def sentences(message: str) -> list[str]:
    return [part.strip() for part in re.split(r"(?<=[.?!])\s+", message) if part.strip()]


def updates(prompt: str) -> list[dict[str, str]]:
    """The decisions about new facts; old memories and facts stand as Python lists in the last code blocks."""
    _, _, shown = prompt.rpartition("current content of my memory")
    *before, facts = (literal_eval(block) for block in re.findall(r"```\s*(\[.*?\])\s*```", shown, re.DOTALL))
    old = before[0] if "current content of my memory" in prompt else []
    made: list[dict[str, str]] = []
    for fact in facts:
        about = " ".join(fact.split()[:4])
        record = next((one for one in old if one["text"].startswith(about)), None)
        if record is None:
            made.append({"id": str(len(old) + len(made)), "text": fact, "event": "ADD"})
        elif record["text"] != fact:
            text = f"{record['text']} {fact}" if "Keep quantities" in prompt else fact
            made.append({"id": record["id"], "text": text, "event": "UPDATE", "old_memory": record["text"]})
    return made


def answer(system: str, question: str) -> str:
    memories = [line.removeprefix("- ") for line in system.splitlines() if line.startswith("- ")]
    wanted = set(words(question))
    best = max(memories, key=lambda text: (len(wanted & set(words(text))), not text.endswith("?")), default="")
    if not best or len(wanted & set(words(best))) < 2:
        return "I do not know." if "I do not know" in system else "Everything is fine."
    return best if "exact words" in system else vague(best, "")


def improved(text: str, steps: Sequence[str]) -> str:
    """The text after the next steps of verdicts."""
    if text.startswith("{"):
        values = json.loads(text)
        raised = [int(n) for step in steps for n in re.findall(r"Raise k to (\d+)", step)]
        lowered = [float(x) for step in steps for x in re.findall(r"threshold below (\d\.\d+)", step)]
        values["k"] = max([values["k"], *raised])
        values["threshold"] = round(min([values["threshold"], *(x - 0.05 for x in lowered)]), 2)
        return json.dumps(values)
    kinds = [kind for kind in VAGUE if any(kind in step for step in steps)]
    added = [f"Keep {kind} as they are said." for kind in kinds]
    if any("answering prompt and model" in step for step in steps):
        added.append("Use the exact words of the memories.")
    if any("I do not know" in step for step in steps):
        added.append('Say "I do not know" when no memory answers.')
    return " ".join([text, *(line for line in added if line not in text)])


def guessed(text: str, examples: Sequence[Mapping[str, str]]) -> str:
    """The text after a guess from the expected answers alone."""
    if text.startswith("{"):
        values = json.loads(text)
        return json.dumps(values | {"k": values["k"] + 1})
    expected = " ".join(example["expected"] for example in examples)
    kinds = {"quantities": r"^\d+$", "dates": r"20\d\d", "names": r"^[A-Z][a-z]+$"}
    found = [kind for kind, form in kinds.items() if any(re.search(form, e["expected"]) for e in examples)]
    added = [f"Keep {kind} as they are said." for kind in found] if "{memories}" not in text else []
    added = added or ["Use the exact words of the memories."]
    return " ".join([text, *(line for line in added if line not in text)]) if expected else text


OWNERS = ("Ana", "Bo", "Cleo", "Dara", "Emil", "Fay", "Gus", "Hana", "Ivo", "June", "Kim", "Leo")
THINGS = ("stall", "garden", "club", "boat", "school", "shop")
NAMES = ("Quill", "Rana", "Soren", "Tilda", "Uma", "Viggo", "Wanda", "Xenia", "Yara", "Zeno")
MONTHS = ("March", "April", "May", "June", "July")
PLACES = ("harbour", "attic", "market", "valley", "station", "library")


def conversations(kinds: Sequence[str], *, count: int = 8, questions: int = 8, seed: int = 0) -> list[Case]:
    """Questions of the kinds in turn. With `asked`, the user also said the question; with `updated`, more."""
    rng = Random(seed)
    cases: list[Case] = []
    for number in range(count):
        facts = [fact(kinds[i % len(kinds)], OWNERS[(number + i) % len(OWNERS)], THINGS[i % len(THINGS)], rng)
                 for i in range(questions)]  # fmt: skip
        said = [text for text, _, _ in facts]
        said += [question for i, (_, question, _) in enumerate(facts) if kinds[i % len(kinds)] == "asked"]
        said += [f"{' '.join(text.split()[:4])} got a roof." for i, (text, _, _) in enumerate(facts)
                 if kinds[i % len(kinds)] == "updated"]  # fmt: skip
        messages = tuple({"role": "user", "content": text} for text in said)
        for i, (_, question, expected) in enumerate(facts):
            cases.append(Case(f"{number}-{i}", f"conversation {number}", messages, question, expected))
    return cases


def fact(kind: str, owner: str, thing: str, rng: Random) -> tuple[str, str, str]:
    """A sentence, a question about the sentence, and the expected answer."""
    if kind in ("quantities", "updated"):
        n, unit = rng.randrange(11, 90), rng.choice(("boxes", "chairs", "lamps", "litres"))
        return f"The {thing} of {owner} needs {n} {unit}.", f"How many {unit} does the {thing} of {owner} need?", str(n)
    if kind == "dates":
        day = f"{rng.randrange(2, 28)} {rng.choice(MONTHS)} 2026"
        return f"The {thing} of {owner} opens on {day}.", f"When does the {thing} of {owner} open?", day
    if kind == "names":
        name = rng.choice(NAMES)
        return f"The {thing} of {owner} is called {name}.", f"What is the {thing} of {owner} called?", name
    if kind == "unasked":
        return f"The {thing} of {owner} is old.", f"Which colour has the bicycle that {owner} sold?", "Not mentioned"
    place = rng.choice(PLACES)
    return f"The {thing} of {owner} stands near the {place}.", f"Where does the {thing} of {owner} stand?", place
