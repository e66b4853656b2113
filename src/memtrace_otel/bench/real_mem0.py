"""Execute a story on a real Mem0 2.x under capture: a scripted model serves what the story says.

Everything of a case runs in a directory of its own. Ids and times are those of the run: the same seed gives the same
story, not the same files.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path

from memtrace_otel.bench.faults import Place, Step
from memtrace_otel.bench.simulated import Answering, Run
from memtrace_otel.bench.stories import Story
from memtrace_otel.demo.model_server import serving
from memtrace_otel.demo.run import observed_environment
from memtrace_otel.launch import find_program
from memtrace_otel.model import OperationSpan, content_digest
from memtrace_otel.semconv import Action, OpKind, Role
from memtrace_otel.sources import SqliteStore

_MEMORY = re.compile(r"^\[(?P<id>[^\]]+)\] (?P<text>.+)$", re.M)
_GIVEN = re.compile(r"^Given answer: (?P<given>.*)$", re.M)
_SECONDS = 300
UNSUPPORTED = frozenset({"U3", "U4"})
"""Faults of the decision about a corrected value: Mem0 2.x makes none, and seldom finds the outdated record."""


class MissingPackageError(RuntimeError):
    """A package of a real system is not installed; the message says how to install the package."""


class StoryModel:
    """The scripted model of one story: it counts turns, and knows what the memory holds."""

    def __init__(self, story: Story) -> None:
        self.story = story
        self.turn = 0
        self.texts: dict[str, str] = {}

    def reply(self, messages: Sequence[Mapping[str, str]]) -> str:
        """Return the reply to a chat request."""
        system = "\n".join(m["content"] for m in messages if m["role"] == "system")
        prompt = next((m["content"] for m in reversed(messages) if m["role"] == "user"), "")
        if "## New Messages" in prompt:
            return self._extract()
        if '"operations"' in system:
            return self._maintain({m["text"]: m["id"] for m in _MEMORY.finditer(prompt)})
        if given := _GIVEN.search(prompt):
            right = self.story.judges(given["given"])
            return json.dumps({"label": "CORRECT" if right else "WRONG", "score": float(right), "explanation": ""})
        if prompt == self.story.asking.question:
            texts = [line.removeprefix("- ") for line in system.splitlines() if line.startswith("- ")]
            return Answering(self.story, texts).answer()
        return self.story.turns[min(self.turn, len(self.story.turns) - 1)].reply

    def _extract(self) -> str:
        """Return the facts of the next turn. Updates and deletions are wishes of the application."""
        facts = list[str]()
        for item in self.story.turns[self.turn].items:
            if item.action in (Action.ADD, Action.NONE):
                facts.append(item.fact)
                self.texts.setdefault(item.key, item.fact)
        self.turn += 1
        return json.dumps(
            {"memory": [{"id": str(i), "text": text, "attributed_to": "user"} for i, text in enumerate(facts)]}
        )

    def _maintain(self, shown: Mapping[str, str]) -> str:
        """Return the updates and deletions of the last turn, for records that the prompt shows."""
        operations = list[dict[str, str]]()
        for item in self.story.turns[self.turn - 1].items:
            text = self.texts.get(item.key, "")
            if item.action not in (Action.UPDATE, Action.DELETE) or text not in shown:
                continue
            if item.action == Action.DELETE:
                operations.append({"action": "delete", "id": shown[self.texts.pop(item.key)]})
            else:
                self.texts[item.key] = self.story.rewritten(text, item.text or item.fact)
                operations.append({"action": "update", "id": shown[text], "text": self.texts[item.key]})
        return json.dumps({"operations": operations})


def check_installed() -> None:
    """Raise MissingPackageError without Mem0 and its embedded store."""
    for package in ("mem0", "qdrant_client"):
        if find_spec(package) is None:
            raise MissingPackageError(f"--system mem0 needs the package {package}: pip install 'memtrace-otel[demo]'")


def execute(story: Story, seed: str) -> Run:
    """Run the story and return what was recorded. Raises MissingPackageError, RuntimeError when the program fails."""
    check_installed()
    asking = story.asking
    users = [f"user-{content_digest(f'{seed}/{number}')[:6]}" for number in range(2)]
    turns = [
        {"user": users[turn.owner], "date": f"{turn.time:%A %-d %B %Y}", "text": " ".join(turn.messages)}
        for turn in story.turns
    ]
    asked = {
        "user": users[max(asking.owner, 0)] if asking.owner >= 0 else users[1],
        "question": asking.question,
        "expected": asking.expected,
        "hits": asking.hits,
        "searches": asking.searches,
        "lost": asking.lost,
    }
    aliases = {asking.question: story.texts["elsewhere"]} if asking.demoted else {}
    with tempfile.TemporaryDirectory() as name, serving(StoryModel(story), aliases) as server:
        directory = Path(name)
        (directory / "case.json").write_text(json.dumps({"turns": turns, "asking": asked}), "utf-8")
        program = shutil.copy(Path(__file__).with_name("real_mem0_program.py"), directory)
        command = find_program([sys.executable, str(program), str(directory / "case.json")]).observed_command
        environment = observed_environment(directory) | {"OPENAI_BASE_URL": server.base_url}
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=_SECONDS)
        if done.returncode:
            raise RuntimeError(f"the program of the case ended with status {done.returncode}:\n{done.stderr[-2000:]}")
        with SqliteStore.open(directory / "memtrace.db", create=False) as store:
            return _read(story, list(store.spans()))


def _read(story: Story, spans: list[OperationSpan]) -> Run:
    """Find the operations: the traces are the turns, in order, and last the question."""
    traces: dict[str, list[OperationSpan]] = {}
    for span in spans:
        traces.setdefault(span.trace_id, []).append(span)
    *turns, question = traces.values()
    if len(turns) != len(story.turns):
        raise RuntimeError(f"{len(turns)} traces were recorded for {len(story.turns)} turns")
    origins: dict[Place, str] = {}
    for number, turn in enumerate(turns):
        answers = [span for span in turn if span.kind == OpKind.RESPOND]
        for step, kinds in (
            (Step.EXTRACT, (OpKind.EXTRACT,)),
            (Step.WRITE, (OpKind.CREATE,)),
            (Step.WRITE, (OpKind.UPDATE, OpKind.DELETE)),
        ):
            found = [span for span in turn if span.kind in kinds and span.attributes]
            if found:
                origins[Place(step, number)] = found[0 if step is Step.EXTRACT else -1].origin
        if len(answers) > 1:
            origins[Place(Step.DECIDE, number)] = answers[-1].origin
    for step, kind in ((Step.SEARCH, OpKind.RETRIEVE), (Step.RESPOND, OpKind.RESPOND), (Step.JUDGE, OpKind.JUDGE)):
        if found := [span for span in question if span.kind == kind]:
            origins[Place(step)] = found[0].origin
    answer = next(span for span in question if span.kind == OpKind.RESPOND)
    given = next(variable.content for variable in answer.outputs if variable.content)
    told = turns[story.gold]
    sources = tuple(v.ref for s in told if s.kind == OpKind.INGEST for v in s.inputs if v.role == Role.MESSAGE)[:1]
    judge = origins[Place(Step.JUDGE)]
    spans = [replace(span, evidence=sources) if span.origin == judge else span for span in spans]
    return Run(spans, given, story.is_right(given), story.judges(given), origins, sources, answer.origin, False)
