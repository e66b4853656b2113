"""What the demo prints: progress, verdicts beside the planted faults, the path of one fact, where to look next."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from rich.console import Console
from rich.text import Text

from memtrace_otel.annotate import Annotation, deliver
from memtrace_otel.annotate.target import read_target
from memtrace_otel.demo.addresses import addresses, examples
from memtrace_otel.demo.planted import Comparison, compare
from memtrace_otel.demo.run import DemoRun, run_demo, shown
from memtrace_otel.graph import EvolutionGraph
from memtrace_otel.model import Verdict
from memtrace_otel.pages import NO_PAGE, UNSURE, FoundPage, Page, find_page, traceql
from memtrace_otel.pipeline.diagnose import diagnose, record
from memtrace_otel.report import render_report, write_private
from memtrace_otel.report.console import fact_tree, verdict_table
from memtrace_otel.report.summary import summarise
from memtrace_otel.semconv import FAILURE_TYPE, FailureType
from memtrace_otel.sources import SqliteStore

Found = Sequence[tuple[Verdict, EvolutionGraph]]
_TOLD = (FailureType.UPDATE, FailureType.DELETION, FailureType.EXTRACTION)


def show_demo(
    directory: Path, console: Console, *, environ: Mapping[str, str] | None = None, page: Page | None = None
) -> bool:
    """Run the demo in `directory` and print it; returns whether every planted fault was named.

    `environ` stands for the environment, whose OTLP receiver gets traces and verdicts; `page` is where that backend
    shows them, looked for on the receiver's host when not given. Raises DemoError, and SendError at the very end when
    the receiver does not take the verdicts."""
    with shown(console) as progress:
        run = run_demo(directory, environ=environ, progress=progress)
    started = time.time_ns()
    with SqliteStore.open(run.database, create=False) as store:
        diagnoses = list(diagnose(store, store))
        annotations = [made for diagnosis in diagnoses for made in record(store, diagnosis, started=started)]
        found = [(verdict, diagnosis.graph) for diagnosis in diagnoses for verdict in diagnosis.verdicts]
        found.sort(key=lambda one: one[0].failure.time_order)
        verdicts = [verdict for verdict, _ in found]
        rows = compare(verdicts, run.planted, store)
    report = run.directory / "report.html"
    title = "Three weeks with an assistant"
    html = render_report(found, title=title, source=_short(run.database))
    write_private(report, html)

    _heading(console, f"{len(run.answers)} questions, {len(verdicts)} failing answers")
    _print_verdicts(console, found, rows)
    _print_path(console, found)
    _heading(console, "Where to look next")
    sends = read_target("traces", environ=environ) is not None
    _print_places(console, run, report, verdicts[0].failure.trace_id if verdicts else "TRACE_ID", sends=sends)
    with SqliteStore.open(run.database, create=False) as store:
        sent = deliver(annotations, store, environ=environ)
    if sent.traces is not None:
        _heading(console, "In your backend")
        _print_addresses(console, annotations, page, sent.traces.endpoint)
        told = f"The demo's traces and {sent.spans} spans of verdicts went to {sent.traces}."
        console.print(Text(told), soft_wrap=True)
    return all(row.matches for row in rows)


def _heading(console: Console, text: str) -> None:
    console.print()
    console.print(Text(text, "bold underline"))


def _print_verdicts(console: Console, found: Found, rows: Sequence[Comparison]) -> None:
    graphs = {verdict.failure.answer_span.origin: graph for verdict, graph in found}
    judged = [(row, row.verdict) for row in rows if row.verdict is not None]
    table = [summarise(verdict, graphs[verdict.failure.answer_span.origin]) for _, verdict in judged]
    console.print(verdict_table(table, planted=[_planted(row) for row, _ in judged]))
    for row in rows:
        if row.verdict is None:
            console.print(Text(f"not named: {row.question} ({_planted(row)})", "red"))
    matching = sum(row.matches for row in rows)
    console.print(Text(f"{matching} of {len(rows)} verdicts name the planted fault with type and operation.", "bold"))
    console.print(Text("The last column comes from the script of the demo; attribution has not seen it.", "dim"))


def _planted(row: Comparison) -> str:
    if row.planted is None:
        return "nothing"
    sign = "✓" if row.matches else "✗"
    return f"{sign} {row.planted.failure_type}: {row.planted.note}"


def _print_path(console: Console, found: Found) -> None:
    told = [one for kind in _TOLD for one in found if one[0].failure_type == kind]
    if told:
        _heading(console, "The path of one fact, from message to loss")
        console.print(fact_tree(*told[0]))


def _print_places(console: Console, run: DemoRun, report: Path, example: str, *, sends: bool) -> None:
    command, database = _command(), _short(run.database)
    rows = [
        ("report, open it in a browser", _short(report)),
        ("database of spans and verdicts", database),
        ("verdicts for machines", f"{command} attribute --all --db {database} --json"),
        ("one trace as a picture", f"{command} graph {example} --db {database} --format dot | dot -Tsvg > fact.svg"),
    ]
    if not sends:
        rows.append(("the same into your backend", f"{command} demo --otlp-endpoint http://localhost:4317"))
    _print_rows(console, rows)


def _print_addresses(console: Console, annotations: Sequence[Annotation], page: Page | None, endpoint: str) -> None:
    written = next((annotation for annotation in annotations if annotation.spans), None)
    if written is None:
        return
    found = FoundPage(page, True) if page else find_page(endpoint, written.verdict.failure.trace_id)
    if found is None:
        failure_type = written.verdict.failure_type
        search = f"all failures of type {failure_type}", traceql("", {FAILURE_TYPE: failure_type})
        _print_rows(console, [*((what, trace_id) for what, trace_id, _ in examples(annotations)), search])
        console.print(Text(f"Their addresses are not known: {NO_PAGE}."), soft_wrap=True)
        return
    if not found.sure:
        console.print(Text(f"The addresses are right {UNSURE}."), soft_wrap=True)
    _print_rows(console, addresses(annotations, found.page))


def _print_rows(console: Console, rows: Sequence[tuple[str, str]]) -> None:
    for what, where in rows:
        console.print(Text(f"  {what:32}", "dim").append(where, "default not dim"), soft_wrap=True)


def _command() -> str:
    """The program as it can be typed here: by name when that finds it, else by its path."""
    name = Path(sys.argv[0]).name
    found = shutil.which(name)
    return name if found and Path(found).resolve() == Path(sys.argv[0]).resolve() else _short(Path(sys.argv[0]))


def _short(path: Path) -> str:
    path = path.absolute()
    return str(path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path)
