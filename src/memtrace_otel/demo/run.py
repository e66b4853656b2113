"""Run the demo: the model server, then the assistant as one process per day and one for the questions.

The assistant is copied into the run's folder and knows nothing of this package. It is observed from outside, by
`opentelemetry-instrument` and environment variables.
"""

from __future__ import annotations

import json
import os
import secrets
import shutil
import subprocess
import sys
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from memtrace_otel import settings
from memtrace_otel.demo.planted import Planted, read_planted
from memtrace_otel.demo.script import load_faults, load_json, load_script
from memtrace_otel.launch import find_program, trace_exporters

Progress = Callable[[str, int, int], None]
"""Called before each step with what it is, its number from 1 and how many there are."""

SERVICE = "assistant"
_MARK = ".memtrace-demo"  # a folder that holds this file is ours to empty
_STEP_SECONDS = 120
_TAIL_LINES = 15
# A user's own settings would send the assistant to a paid model, or sample away what the demo shows.
_FOREIGN = ("OPENAI_", "OPENROUTER_", "MEM0_", "OTEL_")
_KEPT = ("OTEL_EXPORTER_",)


class DemoError(RuntimeError):
    """The demo cannot run: the message names the step, the reason and the log."""


@dataclass(frozen=True, slots=True)
class Answer:
    """A judged answer as the assistant reported it."""

    question: str
    expected: str
    given: str
    label: str
    explanation: str


@dataclass(frozen=True, slots=True)
class DemoRun:
    """What a run left behind: the span database, the judged answers, the planted faults and the logs."""

    directory: Path
    database: Path
    answers: Sequence[Answer]
    planted: Sequence[Planted]
    logs: Path


def run_demo(
    directory: Path,
    *,
    environ: Mapping[str, str] | None = None,
    progress: Progress = lambda step, number, total: None,
) -> DemoRun:
    """Run the whole story in `directory`, which is emptied when an earlier run made it; raises DemoError.

    `environ` stands for the environment: what it says of OTLP receivers applies.
    """
    _check_installed()
    directory = _fresh(directory.resolve())
    logs, app = directory / "logs", directory / "app"
    days = _write_app(app)
    total = len(days) + 2
    progress("start the model server", 1, total)
    with _model_server(directory) as base_url:
        environment = {**observed_environment(directory, environ), "OPENAI_BASE_URL": base_url}
        for day, title in days.items():
            progress(title, day + 1, total)
            arguments = ["chat", "--story", str(app / "story.json"), "--day", str(day)]
            _assistant(directory, f"day-{day}", arguments, environment)
        progress("questions from memory", total, total)
        _assistant(directory, "questions", ["ask", "--questions", str(app / "questions.json")], environment)
    return DemoRun(
        directory=directory,
        database=directory / "memtrace.db",
        answers=list(_answers(logs / "questions.out")),
        planted=read_planted(directory / "journal.jsonl"),
        logs=logs,
    )


def _check_installed() -> None:
    for package in ("mem0", "qdrant_client"):
        if find_spec(package) is None:
            raise DemoError(f"the demo needs the package {package}: in a checkout, pip install '.[demo]'")


def _fresh(directory: Path) -> Path:
    """Return `directory`, new or emptied; refuse to empty a folder that is not from an earlier run."""
    if directory.exists() and not (directory / _MARK).exists() and any(directory.iterdir()):
        raise DemoError(f"{directory} holds something that is not an earlier demo; give another folder")
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True, exist_ok=True)
    (directory / _MARK).touch()
    (directory / "logs").mkdir()
    return directory


def _write_app(app: Path) -> dict[int, str]:
    """Write the assistant, its conversations and its questions; return a title for each day.

    User ids are of this run alone: in a backend that holds an earlier one, its memories would be theirs, too.
    """
    app.mkdir()
    shutil.copy(Path(__file__).with_name("assistant.py"), app)
    story, run = load_json("story.json"), secrets.token_hex(4)
    ids = {user: f"{user}-{run}" for user in story["users"]}
    conversations: list[dict[str, Any]] = [
        {**told, "user": ids[told["user"]], "turns": [turn["say"] for turn in told["turns"]]}
        for told in story["conversations"]
    ]
    questions = [
        {"user": ids[question.user], "question": question.question, "expected": question.expected}
        for question in load_script(load_faults()).questions
    ]
    (app / "story.json").write_text(json.dumps(conversations, indent=1), "utf-8")
    (app / "questions.json").write_text(json.dumps(questions, indent=1), "utf-8")
    titles = dict[int, str]()
    for conversation in story["conversations"]:
        day, user = conversation["day"], story["users"][conversation["user"]]
        titles[day] = f"day {day}, {conversation['date']}: {user}"
    return titles


@contextmanager
def _model_server(directory: Path) -> Generator[str]:
    """Run the model server in a process of its own and yield its base URL."""
    log = directory / "logs" / "model-server.log"
    command = [sys.executable, "-m", "memtrace_otel.demo.model_server", "--journal", str(directory / "journal.jsonl")]
    with (
        log.open("wb") as errors,
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True) as server,
    ):
        assert server.stdin is not None
        assert server.stdout is not None
        try:
            base_url = server.stdout.readline().strip()
            if not base_url:
                raise DemoError(f"the model server did not start: {_tail(log)}")
            yield base_url
        finally:
            server.stdin.close()  # the server ends with its input


def observed_environment(directory: Path, environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """Return what makes the assistant observed and keeps it on this machine: environment variables only."""
    environ = os.environ if environ is None else environ
    inherited = {
        name: value for name, value in environ.items() if name.startswith(_KEPT) or not name.startswith(_FOREIGN)
    }
    direct = ",".join(filter(None, (environ.get("NO_PROXY") or environ.get("no_proxy"), "127.0.0.1")))
    return inherited | {
        "OTEL_SERVICE_NAME": SERVICE,
        "OTEL_TRACES_EXPORTER": ",".join(trace_exporters(environ)),
        "OTEL_METRICS_EXPORTER": "none",
        "OTEL_LOGS_EXPORTER": "none",
        settings.CAPTURE_CONTENT.env: "SPAN_ONLY",
        settings.RECORD_ORIGIN.env: "true",  # each day is a process of its own, links lead from one to the other
        settings.DB_PATH.env: str(directory / "memtrace.db"),
        "OPENAI_API_KEY": "none",
        "MEM0_TELEMETRY": "False",
        "MEM0_DIR": str(directory / "mem0"),
        "HF_HUB_OFFLINE": "1",
        "NO_PROXY": direct,
        "no_proxy": direct,
    }


def _assistant(directory: Path, name: str, arguments: Sequence[str], environment: Mapping[str, str]) -> None:
    """Run one assistant process under auto-instrumentation; raises DemoError with the end of its log."""
    out, log = directory / "logs" / f"{name}.out", directory / "logs" / f"{name}.log"
    script = [str(directory / "app" / "assistant.py"), "--home", str(directory / "memory")]
    command = find_program([sys.executable, *script, *arguments]).observed_command
    environment = {**environment, "OTEL_RESOURCE_ATTRIBUTES": f"service.instance.id={name}"}
    with out.open("wb") as output, log.open("wb") as errors:
        try:
            status = subprocess.run(
                command, env=environment, stdin=subprocess.DEVNULL, stdout=output, stderr=errors, timeout=_STEP_SECONDS
            ).returncode
        except subprocess.TimeoutExpired:
            raise DemoError(f"{name}: the assistant took over {_STEP_SECONDS} s: {_tail(log)}") from None
    if status != 0:
        raise DemoError(f"{name}: the assistant ended with status {status}: {_tail(log)}")


def _answers(path: Path) -> Iterator[Answer]:
    for line in path.read_text("utf-8").splitlines():
        answer = cast(dict[str, Any], json.loads(line))
        yield Answer(**{name: answer[name] for name in Answer.__slots__})


def _tail(log: Path) -> str:
    lines = log.read_text("utf-8", errors="replace").splitlines()[-_TAIL_LINES:]
    return "\n".join([f"see {log}", *(f"  {line}" for line in lines)])


@contextmanager
def shown(console: Console) -> Generator[Progress]:
    """Yield a progress callback that shows each step on `console`."""
    if not console.is_terminal:
        yield lambda step, number, total: console.print(f"[{number}/{total}] {step}", markup=False, highlight=False)
        return
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Bar(*columns, console=console) as bar:
        task = bar.add_task("")
        yield lambda step, number, total: bar.update(task, description=step, completed=number - 1, total=total)
        bar.update(task, description="done", completed=bar.tasks[0].total)
