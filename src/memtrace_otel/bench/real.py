"""Execute a story on a real system under capture: a scripted model serves what the story says.

A program of `programs` runs under `opentelemetry-instrument` and forks for each case. Ids and times are those of the
run: the same seed gives the same story, not the same files.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from atexit import register
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Timer
from typing import Any

from packaging.requirements import Requirement

from memtrace_otel.bench.faults import CODES, Place, Step
from memtrace_otel.bench.simulated import Run
from memtrace_otel.bench.stories import Story
from memtrace_otel.bench.story_model import StoryModel
from memtrace_otel.demo.model_server import serving
from memtrace_otel.demo.run import observed_environment
from memtrace_otel.launch import find_program
from memtrace_otel.model import OperationSpan, content_digest
from memtrace_otel.semconv import OpKind, RefKind, Role
from memtrace_otel.sources import SqliteStore

_SECONDS = 300
_OUTSIDE = {"N1", "N2", "N3", "healthy"}
_ANSWERS = {"A1", "A2", "A3", *_OUTSIDE}


class RealSystemError(RuntimeError):
    """A package of a real system is not installed, or the program failed; the message says how to go on."""


@dataclass(frozen=True, slots=True)
class RealSystem:
    """A real system: its program, the packages, the faults that have a place in the system."""

    module: str
    requires: tuple[str, ...]
    install: str
    faults: frozenset[str]
    embeds: bool = True
    """The embedding of the scripted model finds records; the embedding knows English words only."""
    threads: bool = False
    """A search can be limited to a thread."""
    corrects: bool = False
    """A value that is corrected can be found."""

    def fits(self, story: Story) -> bool:
        """Return whether the system can execute a story."""
        return (story.language == "en" or not self.embeds) and (self.threads or story.asking.thread is None)


SYSTEMS: Mapping[str, RealSystem] = {
    "mem0": RealSystem(
        "mem0_memory", ("mem0ai>=2,<3", "qdrant-client"), "'memtrace-otel[demo]'",
        frozenset(CODES) - {"U3", "U4"},  # Mem0 2.x makes no decision about a corrected value
    ),
    "mem0-1": RealSystem(
        "mem0_memory", ("mem0ai>=1,<2", "qdrant-client"), "'mem0ai>=1,<2' qdrant-client", frozenset(CODES),
        corrects=True,
    ),
    "rag": RealSystem(
        "rag", ("langchain-core", "langchain-openai"), "langchain-openai",
        frozenset({"R1", "R2", "R3", "M1", "S1", *_ANSWERS}), threads=True,
    ),
    "notebook": RealSystem(
        "notebook", (), "", frozenset({"E1", "E2", "E3", "U1", "U2", "U3", "U4", "D1", *_ANSWERS}), embeds=False,
        corrects=True,
    ),
    "long-context": RealSystem(
        "long_context", (), "", frozenset({"R3", *_ANSWERS}), embeds=False, corrects=True
    ),
}  # fmt: skip


def check_installed(name: str) -> None:
    """Raise RealSystemError where a package of a system is missing, or is installed in a version out of range."""
    for text in SYSTEMS[name].requires:
        wanted = Requirement(text)
        try:
            found = version(wanted.name)
        except PackageNotFoundError:
            found = ""
        if not found or not wanted.specifier.contains(found, prereleases=True):
            told = f"{wanted.name} {found} is installed: in another environment, " if found else ""
            raise RealSystemError(f"--system {name} needs {text}; {told}pip install {SYSTEMS[name].install}")


class Runner:
    """A program under capture and the server of its model, for many cases."""

    def __init__(self, system: RealSystem, cleanup: ExitStack) -> None:
        self.directory = Path(cleanup.enter_context(TemporaryDirectory(prefix="memtrace-bench-")))
        self.database = self.directory / "memtrace.db"
        self.server = cleanup.enter_context(serving(StoryModel.__new__(StoryModel)))
        command = [sys.executable, "-m", "memtrace_otel.bench.programs", system.module]
        self.errors = cleanup.enter_context((self.directory / "errors").open("w+", encoding="utf-8"))
        self.program = cleanup.enter_context(
            subprocess.Popen(
                find_program(command).observed_command,
                env=observed_environment(self.directory) | {"OPENAI_BASE_URL": self.server.base_url},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.errors, text=True,
            )
        )  # fmt: skip

    def run(self, story: Story, aliases: Mapping[str, str], case: Mapping[str, Any]) -> list[OperationSpan]:
        """Return the spans of a case. Raises RealSystemError when its process fails."""
        assert self.program.stdin is not None
        assert self.program.stdout is not None
        self.server.model, self.server.aliases = StoryModel(story), aliases
        home = self.directory / "case"
        home.mkdir()
        timer = Timer(_SECONDS, self.program.kill)
        timer.start()
        try:
            print(json.dumps({**case, "home": str(home)}), file=self.program.stdin, flush=True)
            status = self.program.stdout.readline().strip()
            if status != "0":
                self.errors.seek(0)
                raise RealSystemError(f"the program of the case ended with {status}:\n{self.errors.read()[-2000:]}")
            with SqliteStore.open(self.database, create=False) as store:
                return list(store.spans())
        finally:
            timer.cancel()
            shutil.rmtree(home)
            for path in self.directory.glob("memtrace.db*"):
                path.unlink()


@cache
def _runner(name: str) -> Runner:
    """Return the runner of a system in this process."""
    cleanup = ExitStack()
    register(cleanup.close)
    return Runner(SYSTEMS[name], cleanup)


def execute(name: str, story: Story, seed: str) -> Run:
    """Run the story on a system and return what was recorded. Raises RealSystemError."""
    check_installed(name)
    asking = story.asking
    users = [f"user-{content_digest(f'{seed}/{number}')[:6]}" for number in range(2)]
    turns = [
        {"user": users[turn.owner], "date": f"{turn.time:%A %-d %B %Y}", "text": " ".join(turn.messages),
         "thread": turn.thread}
        for turn in story.turns
    ]  # fmt: skip
    how: dict[str, Any] = {
        "searched": users[0 if asking.owner == 0 else 1], "thread": asking.thread, "hits": asking.hits,
        "searches": asking.searches, "lost": asking.lost,
    }  # fmt: skip
    if asking.lost:  # the window holds the question, and what was told after the value
        how["window"] = 1 + 2 * sum(turn.owner == 0 for turn in story.turns[story.gold + 1 :])
    question = {"user": users[0], "question": asking.question, "expected": asking.expected}
    case = {"turns": turns, "asking": how, "question": question}
    return _read(story, _runner(name).run(story, _aliases(story), case))


def _aliases(story: Story) -> dict[str, str]:
    """Return texts that are embedded as other texts, so that a change of the record asked for finds the record.

    The same texts are near the record with and without a fault.
    """
    asked = next((item.fact for turn in story.turns for item in turn.items if item.key == "asked"), "")
    aliases: dict[str, str] = {}
    for turn in (story.turns[number] for number in (story.gold, story.aside, story.cleanup)):
        facts = [item.fact for item in turn.items if item.key in ("asked", "obsolete") and item.fact != asked]
        aliases |= {text: f"{text} {asked}" for text in (" ".join(turn.messages), *facts)}
    return aliases | ({story.asking.question: story.texts["elsewhere"]} if story.asking.demoted else {})


def _read(story: Story, spans: list[OperationSpan]) -> Run:
    """Find the operations: the traces are the turns, in order, and last the question."""
    traces: dict[str, list[OperationSpan]] = {}
    for span in spans:
        traces.setdefault(span.trace_id, []).append(span)
    for trace in traces.values():
        trace.sort(key=lambda span: span.part)  # continuations last
    *turns, question = traces.values()
    if len(turns) != len(story.turns):
        raise RealSystemError(f"{len(turns)} traces were recorded for {len(story.turns)} turns")
    origins: dict[Place, str] = {}
    into = {v.origin: span.origin for span in spans if span.kind == OpKind.CONSOLIDATE for v in span.inputs}
    for number, turn in enumerate(turns):
        answers = [span for span in turn if span.kind == OpKind.RESPOND and not span.part]
        if len(answers) > 1:  # the second call of the model decides; of a profile, the call is all of the writing
            call = answers[-1].origin
            origins |= {Place(Step.EXTRACT, number): call, Place(Step.DECIDE, number): call}
            origins[Place(Step.WRITE, number)] = into.get(call, call)
        for step, kinds in (
            (Step.EXTRACT, (OpKind.EXTRACT,)),
            (Step.DECIDE, (OpKind.DECIDE,)),
            (Step.WRITE, (OpKind.CREATE,)),
            (Step.WRITE, (OpKind.UPDATE, OpKind.DELETE)),
        ):
            found = [span for span in turn if span.kind in kinds and span.attributes]
            if found:
                origins[Place(step, number)] = found[0 if step is Step.EXTRACT else -1].origin
    for step, kind in (
        (Step.SEARCH, OpKind.RETRIEVE),
        (Step.ASSEMBLE, OpKind.ASSEMBLE),
        (Step.RESPOND, OpKind.RESPOND),
        (Step.JUDGE, OpKind.JUDGE),
    ):
        if found := [span for span in question if span.kind == kind]:
            origins[Place(step)] = found[0].origin
    answer = next(span for span in question if span.kind == OpKind.RESPOND)
    parts = (span for span in question if answer.span_id in (span.span_id, span.parent_id))
    given = next(v.content for span in parts for v in span.outputs if v.role == Role.ANSWER and v.content)
    sources = _sources(" ".join(story.turns[story.gold].messages), spans)
    judge = origins[Place(Step.JUDGE)]
    spans = [replace(span, evidence=sources) if span.origin == judge else span for span in spans]
    return Run(lambda: spans, given, story.is_right(given), story.judges(given), origins, sources, answer.origin, False)


def _sources(told: str, spans: list[OperationSpan]) -> tuple[str, ...]:
    """Return the ref of the first message or document that holds a text, else of the request that holds the text."""
    found = [variable for span in spans for variable in span.inputs if told in variable.content]
    found.sort(key=lambda variable: variable.ref.partition(":")[0] not in (RefKind.MESSAGE, RefKind.DOCUMENT))
    return tuple(variable.ref for variable in found[:1])
