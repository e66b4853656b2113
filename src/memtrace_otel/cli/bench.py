"""`bench`: a benchmark with known causes: generate cases, attribute them, score the verdicts."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import click
from rich.table import Table

from memtrace_otel.cli.errors import clear_errors, fail
from memtrace_otel.cli.options import ask_with, endpoint_within, examples, model_options
from memtrace_otel.cli.output import print_table, progress_bar, tell_model
from memtrace_otel.model.printable import printable_json

_directory = click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
_as_json = click.option("--json", "as_json", is_flag=True, help="JSON on standard output.")
_processes = click.option("--processes", type=click.IntRange(1), help="Processes at work.  [default: one per core]")


@click.group(
    epilog=examples(
        "memtrace-otel bench generate --out bench --cases 600",
        "memtrace-otel bench run bench && memtrace-otel bench score bench",
    )
)
def bench() -> None:
    """Plant known faults, attribute the failed answers, and score the verdicts."""


def _choices(kind: str) -> Callable[[click.Context, click.Parameter, tuple[str, ...]], tuple[str, ...]]:
    """Return a callback that checks the names of systems or faults, and gives all of them for none."""

    def check(context: click.Context, parameter: click.Parameter, chosen: tuple[str, ...]) -> tuple[str, ...]:
        from memtrace_otel.bench.faults import CODES
        from memtrace_otel.bench.generate import SYSTEMS

        known = CODES if kind == "fault" else SYSTEMS
        if unknown := [name for name in chosen if name not in known]:
            raise click.BadParameter(f"no such {kind}: {', '.join(unknown)} (known: {', '.join(known)})")
        return tuple(dict.fromkeys(chosen)) or (known if kind == "fault" else known[:1])

    return check


def _span_of_counts(context: click.Context, parameter: click.Parameter, text: str) -> tuple[int, int]:
    low, _, high = text.partition("..")
    try:
        found = int(low), int(high or low)
    except ValueError:
        found = (0, 0)
    if not 10 <= found[0] <= found[1] <= 20_000:
        raise click.BadParameter("a number from 10 to 20000, or two of them such as 20..2000")
    return found


@bench.command(
    epilog=examples(
        "memtrace-otel bench generate --out bench --cases 1500 --seed 7",
        "memtrace-otel bench generate --out long --cases 100 --messages 200..2000",
        "memtrace-otel bench generate --out updates --fault U1 --fault U2 --cases 100",
        "memtrace-otel bench generate --out real --system rag --system notebook --cases 60",
    )
)
@click.option(
    "--out",
    "directory",
    required=True,
    type=click.Path(file_okay=False, path_type=Path),
    help="Directory of the cases.",
)
@click.option(
    "--system",
    "systems",
    multiple=True,
    callback=_choices("system"),
    help="Memory system, repeatable: spans, mem0, mem0-1, rag, notebook, long-context.  [default: spans]",
)
@click.option(
    "--fault",
    "faults",
    multiple=True,
    callback=_choices("fault"),
    help="Fault, such as E1, repeatable.  [default: all]",
)
@click.option("--cases", default=600, show_default=True, type=click.IntRange(1), help="Number of cases.")
@click.option(
    "--messages", default="20..60", show_default=True, callback=_span_of_counts, help="Messages of a conversation."
)
@click.option("--stories", default="templates", show_default=True, metavar="templates|FILE",
              help="Source of the stories: own templates, or conversations in the shape of LoCoMo.")  # fmt: skip
@click.option("--seed", default=1, show_default=True, help="The same seed gives the same files.")
@_processes
@clear_errors
def generate(
    directory: Path,
    systems: tuple[str, ...],
    faults: tuple[str, ...],
    cases: int,
    messages: tuple[int, int],
    stories: str,
    seed: int,
    processes: int | None,
) -> None:
    """Write cases with one planted fault each, and healthy ones; go on where an earlier call was stopped.

    A case is admitted when its answer is wrong with the fault and right without. `spans/` holds what the program
    recorded, `truth/` what was planted; no label is in the spans.
    """
    from memtrace_otel.bench.generate import BenchError, Plan, generate
    from memtrace_otel.bench.real import RealSystemError

    try:
        with progress_bar("generate") as progress:
            plan = Plan(seed, cases, systems, faults, messages, stories)
            reasons: list[str] = []
            written = generate(plan, directory, processes=processes, progress=progress, left_out=reasons.append)
    except (BenchError, RealSystemError) as error:
        fail(str(error))
    if reasons:
        click.echo(f"left out {len(reasons)} cases that the conversations do not hold, as {reasons[0]}", err=True)
    click.echo(f"{written} new cases in {directory}")


@bench.command(epilog=examples("memtrace-otel bench run bench", "memtrace-otel bench run bench --evidence known"))
@_directory
@model_options
@click.option("--evidence", default="unknown", show_default=True, type=click.Choice(["known", "unknown"]),
              help="Whether the messages that told the answer are named.")  # fmt: skip
@click.option("--expected", default="known", show_default=True, type=click.Choice(["known", "unknown"]),
              help="Whether the expected answer is given.")  # fmt: skip
@click.option("--content", default="on", show_default=True, type=click.Choice(["on", "off"]),
              help="Whether contents are captured.")  # fmt: skip
@_processes
@clear_errors
def run(
    directory: Path,
    method: str,
    concurrency: int,
    max_cost: float | None,
    evidence: str,
    expected: str,
    content: str,
    processes: int | None,
) -> None:
    """Attribute the failed answers of DIRECTORY in one mode; the results go to `results/` there."""
    from memtrace_otel.bench.generate import BenchError
    from memtrace_otel.bench.run import Mode, read_verdicts, run

    endpoint = endpoint_within(max_cost)
    ask = ask_with(method, endpoint)
    mode = Mode(method, evidence == "known", expected == "known", content == "on")
    try:
        with progress_bar(f"run {mode.name}") as progress:
            path = run(directory, mode, processes=processes, ask=ask, concurrency=concurrency, progress=progress)
    except BenchError as error:
        fail(str(error))
    finally:
        endpoint.close()
    if ask:
        tell_model(endpoint, [(said["method"], said["model_problem"]) for said in read_verdicts(path)])
    click.echo(f"verdicts in {path}")


_PAGE = re.compile(rb'content="memtrace-otel [^"]*">\s*<title>Benchmark ')
"""Start of a page of `bench score`."""


def _own_page(context: click.Context, parameter: click.Parameter, path: Path | None) -> Path | None:
    """Refuse a file that `bench score` did not write, and a folder that does not exist. A click callback."""
    if path and not path.parent.is_dir():
        raise click.BadParameter(f"{path.parent} is no directory")
    if path and path.exists() and not _PAGE.search(path.read_bytes()[:4096]):
        raise click.BadParameter(f"{path} is no page of `bench score` and would be lost; name another file")
    return path


@bench.command(epilog=examples("memtrace-otel bench score bench --html bench.html"))
@_directory
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), callback=_own_page,
              help="Write a page, with reports beside it.")  # fmt: skip
@_as_json
@clear_errors
def score(directory: Path, html: Path | None, as_json: bool) -> None:
    """Compare the results in DIRECTORY with what was planted, for every mode that was run.

    A verdict is right when its type is right and, where an operation is at fault, its operation.
    """
    from memtrace_otel.bench.generate import BenchError
    from memtrace_otel.bench.score import read_results, score

    try:
        results = read_results(directory)
    except BenchError as error:
        fail(str(error))
    found = {mode: score(outcomes) for mode, outcomes in results.items()}
    if html:
        from memtrace_otel.bench.page import write_page

        write_page(directory, results, html)
        click.echo(f"page in {html}", err=True)
    if as_json:
        click.echo(printable_json(found))
        return
    print_table(_overview(found))
    for name in ("fault", "system", "wording", "language", "length"):
        print_table(_by(name, found))


@bench.command(
    epilog=examples(
        "memtrace-otel bench health --out stories",
        "memtrace-otel import --db leaks.db stories/leaks.pb.gz && memtrace-otel health --db leaks.db",
    )
)
@click.option(
    "--out", "directory", required=True, type=click.Path(file_okay=False, path_type=Path), help="Directory to write to."
)
@clear_errors
def health(directory: Path) -> None:
    """Write the spans of a healthy memory, and for each measure of `health` those of a memory with the fault."""
    from memtrace_otel.bench.health import write_stories

    click.echo(f"{len(write_stories(directory))} stories in {directory}")


_FIGURES: Mapping[str, str] = {
    "type": "type",
    "macro_f1": "macro-F1",
    "eta": "type, memory failures (ETA)",
    "operation_1": "operation (OIA)",
    "operation_2": "operation, top 2",
    "joint": "type and operation",
    "outside_precision": "judge/annotation precision",
    "outside_recall": "judge/annotation recall",
    "accused_healthy": "healthy runs accused",
    "accused_right": "right answers accused",
    "abstained": "abstained",
    "calibration_error": "calibration error",
    "coverage": "coverage at 90 % precision",
    "seconds": "seconds per case",
    "asked": "cases with a model asked",
    "not_asked": "type, cases without a model asked",
    "tokens": "tokens per case asked, median",
}


def _overview(found: Mapping[str, Mapping[str, Any]]) -> Table:
    """Return the table of all figures, a column per mode; baselines below."""
    table = Table("figure", *found, title="all cases")
    first = next(iter(found.values()))
    table.add_row("cases, of these failing", *(f"{s['all']['cases']}, {s['all']['failing']}" for s in found.values()))
    table.add_row("cases of a fault in a wording, fewest", *(str(s["fewest"]) for s in found.values()))
    for key, title in _FIGURES.items():
        table.add_row(title, *(_cell(s["all"][key]) for s in found.values()))
    table.add_section()
    for name in first["baselines"]:
        table.add_row(f"{name}: type", *(_cell(s["baselines"][name]["type"]) for s in found.values()))
    return table


def _by(name: str, found: Mapping[str, Mapping[str, Any]]) -> Table:
    """Return the share of right verdicts (type, and operation where one is at fault) by a property of the cases."""
    table = Table(name, "failing", *found, title=f"right verdicts by {name}")
    first = next(iter(found.values()))
    for value, figures in first["by"][name].items():
        cells = [s["by"][name][value] for s in found.values()]
        shown = [_cell(c["right"] if c["failing"] else c["accused_healthy"]) for c in cells]
        table.add_row(value if figures["failing"] else f"{value} (accused)", str(figures["failing"]), *shown)
    return table


def _cell(figure: Mapping[str, Any] | float | None) -> str:
    if figure is None:
        return "-"
    if not isinstance(figure, Mapping):
        return f"{figure:.3f}"
    if figure["share"] is None:
        return "-"
    return f"{figure['share']:.1%} [{figure['low']:.0%}, {figure['high']:.0%}]"


@bench.command(
    epilog=examples(
        "memtrace-otel bench compare before after",
        "memtrace-otel bench compare bench/results/rules-expected-content.jsonl bench/results/rules-expected.jsonl",
    )
)
@click.argument("a", type=click.Path(exists=True, path_type=Path))
@click.argument("b", type=click.Path(exists=True, path_type=Path))
@_as_json
@clear_errors
def compare(a: Path, b: Path, as_json: bool) -> None:
    """Compare two results on the same cases, paired, by McNemar's exact test.

    A and B are files of results, or directories with the same cases: then each mode that both have is compared.
    """
    from memtrace_otel.bench.compare import FIGURES, compare
    from memtrace_otel.bench.generate import BenchError

    try:
        found = compare(a, b)
    except BenchError as error:
        fail(str(error))
    if as_json:
        click.echo(printable_json(found))
        return
    for mode, result in found.items():
        table = Table("", "cases", "A right", "B right", "only A", "only B", "p", title=mode)
        rows = {**{name: result[name] for name in FIGURES}, **result["by_fault"]}
        for name, row in rows.items():
            counts = [str(row[key]) for key in ("cases", "a", "b", "only_a", "only_b")]
            table.add_row(name, *counts, f"{row['p']:.3g}", end_section=name == list(FIGURES)[-1])
        print_table(table)
