"""What the demo prints: progress, verdicts beside the planted faults, the path of one fact, where to look next."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from memtrace_otel.annotate import deliver
from memtrace_otel.demo.planted import Comparison, compare
from memtrace_otel.demo.progress import shown
from memtrace_otel.demo.run import SERVICE, DemoRun, run_demo
from memtrace_otel.diagnosis import Diagnosis, diagnose, record
from memtrace_otel.report import render_report
from memtrace_otel.report.console import fact_tree, verdict_table
from memtrace_otel.semconv import FAILURE_TYPE, FailureType
from memtrace_otel.store import SqliteStore

_TOLD = (FailureType.UPDATE, FailureType.DELETION, FailureType.EXTRACTION)


def show_demo(directory: Path, console: Console) -> bool:
    """Run the demo in `directory` and print it; returns whether every planted fault was named.

    Raises DemoError, and SendError at the very end when a configured backend does not take the verdicts."""
    started = time.time_ns()
    with shown(console) as progress:
        run = run_demo(directory, progress=progress)
    with SqliteStore.open(run.database, create=False) as store:
        diagnosis = diagnose(store)
        annotations = record(store, diagnosis, started=started)
        rows = compare(diagnosis.verdicts, run.planted, store)
    report = run.directory / "report.html"
    title = "Three weeks with an assistant"
    page = render_report(diagnosis.verdicts, diagnosis.graph, title=title, source=_short(run.database))
    report.write_text(page, "utf-8")

    _heading(console, f"{len(run.answers)} questions, {len(diagnosis.verdicts)} failing answers")
    _print_verdicts(console, diagnosis, rows)
    _print_path(console, diagnosis)
    _heading(console, "Where to look next")
    _print_places(console, run, report, diagnosis.verdicts[0].failure.trace_id if diagnosis.verdicts else "TRACE_ID")
    with SqliteStore.open(run.database, create=False) as store:
        sent = deliver(annotations, store)
    if sent.traces is not None:
        console.print(Text(f"The verdicts are in your backend, too: {sent.spans} spans sent to {sent.traces}."))
    return all(row.matches for row in rows)


def _heading(console: Console, text: str) -> None:
    console.print()
    console.print(Text(text, "bold underline"))


def _print_verdicts(console: Console, diagnosis: Diagnosis, rows: Sequence[Comparison]) -> None:
    judged = [row for row in rows if row.verdict is not None]
    verdicts = [row.verdict for row in judged if row.verdict is not None]
    console.print(verdict_table(verdicts, diagnosis.graph, planted=[_planted(row) for row in judged]))
    for row in rows:
        if row.verdict is None:
            console.print(Text(f"not named: {row.question} ({_planted(row)})", "red"))
    found = sum(row.matches for row in rows)
    console.print(Text(f"{found} of {len(rows)} verdicts name the planted fault with type and operation.", "bold"))
    console.print(Text("The last column comes from the script of the demo; attribution has not seen it.", "dim"))


def _planted(row: Comparison) -> str:
    if row.planted is None:
        return "nothing"
    sign = "✓" if row.matches else "✗"
    return f"{sign} {row.planted.failure_type}: {row.planted.note}"


def _print_path(console: Console, diagnosis: Diagnosis) -> None:
    told = [verdict for kind in _TOLD for verdict in diagnosis.verdicts if verdict.failure_type == kind]
    if told:
        _heading(console, "The path of one fact, from message to loss")
        console.print(fact_tree(told[0], diagnosis.graph))


def _print_places(console: Console, run: DemoRun, report: Path, example: str) -> None:
    command, database = _command(), _short(run.database)
    for what, where in (
        ("report, open it in a browser", _short(report)),
        ("database of spans and verdicts", database),
        ("verdicts for machines", f"{command} attribute --all --db {database} --json"),
        ("one trace as a picture", f"{command} graph {example} --db {database} --format dot | dot -Tsvg > fact.svg"),
        (
            "the same into a running Jaeger",
            f"OTEL_TRACES_EXPORTER=otlp,memtrace OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4317 {command} demo",
        ),
        ("then search there", f"service {SERVICE}, tag {FAILURE_TYPE}=update"),
    ):
        console.print(Text(f"  {what:32}", "dim").append(where, "default not dim"), soft_wrap=True)


def _command() -> str:
    """The program as it can be typed here: by name when that finds it, else by its path."""
    name = Path(sys.argv[0]).name
    found = shutil.which(name)
    return name if found and Path(found).resolve() == Path(sys.argv[0]).resolve() else _short(Path(sys.argv[0]))


def _short(path: Path) -> str:
    path = path.absolute()
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
