"""`repair`: what to change in a memory system, and a closed loop that tests each change."""

from __future__ import annotations

import sys
import time
from collections import Counter
from collections.abc import Generator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memtrace_otel.cli.errors import NOTHING_FOUND, clear_errors, fail
from memtrace_otel.cli.options import (
    DAY,
    database_option,
    examples,
    named_endpoint,
    no_database,
    since_option,
    source_option,
)
from memtrace_otel.cli.output import print_table, progress_bar
from memtrace_otel.model.printable import printable_json

if TYPE_CHECKING:
    from rich.table import Table

    from memtrace_otel.repair.optimize import Progress, Result
    from memtrace_otel.repair.plan import Plan

_LIVE_ROWS = 15


@click.group(epilog=examples("memtrace-otel repair plan", "memtrace-otel repair optimize repair.toml"))
def repair() -> None:
    """Find out what to change in a memory system, and test changes."""


@repair.command(
    epilog=examples(
        "memtrace-otel repair plan --db run.db",
        "memtrace-otel repair plan --since 7d --markdown",
        "memtrace-otel repair plan --source tempo+http://localhost:3200 --since 24h",
    )
)
@database_option
@source_option
@since_option
@click.option("--method", type=click.Choice(["rules", "model"]), default="rules", show_default=True,
              help="model: MEMTRACE_MODEL at OPENAI_BASE_URL also writes a narrative that cites verdicts.")  # fmt: skip
@click.option("--json", "form", flag_value="json", help="One JSON object on standard output.")
@click.option("--markdown", "form", flag_value="markdown", help="Markdown on standard output.")
@click.option("--html", "page", type=click.Path(dir_okay=False, path_type=Path), callback=no_database,
              help="Also write one self-contained HTML file.")  # fmt: skip
@clear_errors
def plan(database: Path, source: str, since: int | None, method: str, form: str | None, page: Path | None) -> None:
    """Point each failure to the component that would have to change.

    The components are the extraction, update and answering prompts, k, threshold, filter, reranker and content limit.
    Failures of the judge, of the annotation and of unknown cause point to no component. --since compares the period
    with the equally long period before. Nothing is written. --method model sends the plan with its exemplars to the
    endpoint; a sentence of the narrative that does not cite a verdict of the plan is left out. A backend (--source)
    tells neither how many answers were judged nor a trend.
    """
    from memtrace_otel.repair.plan import markdown, plan_of_source, plan_of_store
    from memtrace_otel.sources import SqliteStore, open_source

    endpoint = named_endpoint() if method == "model" else None
    with progress_bar("attribute") as progress:
        if source:
            with closing(open_source(source)) as backend:
                found = plan_of_source(backend, since or time.time_ns() - DAY, progress=progress)
        else:
            with SqliteStore.open(database, create=False) as store:
                found = plan_of_store(store, since or 0, progress=progress)
    if not found["answers"]["hits"]:
        period = " in this period" * (since is not None)
        fail(f"no failing answer in {source or database}{period}", NOTHING_FOUND)
    if endpoint:
        from memtrace_otel.repair.narrative import narrate

        found["narrative"] = narrate(found, endpoint)
    if page:
        from memtrace_otel.repair.page import write_plan

        write_plan(found, source or str(database), page)
    if form == "json":
        click.echo(printable_json(found))
    elif form == "markdown":
        click.echo(markdown(found), nl=False)
    else:
        _print_plan(found)


def _print_plan(plan: Plan) -> None:
    from rich.table import Table

    from memtrace_otel.repair.plan import shown, told

    if narrative := plan.get("narrative"):
        click.echo(f"{click.wrap_text(told(narrative), 100)}\n")
    table = Table("failure type", "failures [95 % interval]", title=f"failed answers: {shown(plan['answers'])}")
    for type, one in plan["by_type"].items():
        table.add_row(type, shown(one))
    print_table(table)
    table = Table("component", "failures", "what would have to change", "exemplar", title="what to change")
    for one in plan["components"]:
        changes = "\n".join(f"{change['failures']} × {change['advice'] or 'no advice'}" for change in one["changes"])
        trace = "\n".join(example["trace_id"] for example in one["examples"])
        table.add_row(one["component"], shown(one["failures"]), changes, trace, end_section=True)
    print_table(table)
    table = Table("cause", "information", "failures", "exemplar question", title="patterns")
    for one in plan["patterns"]:
        table.add_row(one["failure_type"], one["information"], str(one["failures"]), one["examples"][0]["question"])
    print_table(table)
    if trend := plan["trend"]:
        table = Table("failure type", "before", "now", "change", title=f"trend; before: {shown(trend['before'])}")
        for type, one in trend["by_type"].items():
            table.add_row(type, str(one["before"]), str(one["now"]), one["change"])
        table.add_section()
        table.add_row("all", str(trend["before"]["hits"]), str(plan["answers"]["hits"]), trend["change"])
        print_table(table)


_run = click.argument("run", type=click.Path(exists=True, file_okay=False, path_type=Path))


@repair.command(epilog=examples("memtrace-otel repair optimize repair.toml", "memtrace-otel repair show repair-run"))
@click.argument("config", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--out", type=click.Path(file_okay=False, path_type=Path), help="Directory of the run. [default: beside "
              "CONFIG, named after CONFIG]")  # fmt: skip
@clear_errors
def optimize(config: Path, out: Path | None) -> None:
    """Search better prompts and parameters for the subject that CONFIG (TOML) names, within its budget.

    Each candidate is run under capture, judged and attributed; the component that most verdicts blame is rewritten by a
    model at OPENAI_BASE_URL. A candidate is offered when it is better on the validation questions by a paired exact
    test. A run that was stopped goes on; a finished run is shown again. Nothing is applied.
    """
    from importlib.util import find_spec

    if find_spec("gepa") is None:
        fail("optimize needs the package gepa: pip install 'memtrace-otel[repair]'")
    from memtrace_otel.repair.optimize import optimize, read_config
    from memtrace_otel.repair.page import write_page
    from memtrace_otel.repair.subjects import RepairError

    directory = out or config.with_name(f"{config.stem}-run")
    sys.path.insert(0, str(config.parent.absolute()))  # the module of the subject lies beside its configuration
    try:
        with _watched() as progress:
            result = optimize(read_config(config), directory, progress=progress)
    except RepairError as error:
        fail(str(error))
    except KeyboardInterrupt:
        click.echo(f"stopped; the same command goes on in {directory}", err=True)
        raise
    _print_run(result)
    click.echo(f"page in {write_page(result, directory)}", err=True)


@repair.command(
    epilog=examples("memtrace-otel repair show repair-run", "memtrace-otel repair show repair-run --db run.db")
)
@_run
@click.option("--db", "database", type=click.Path(exists=True, dir_okay=False, path_type=Path),
              help="Compare the failures of this database after the application with the time before.")  # fmt: skip
@click.option("--json", "as_json", is_flag=True, help="The whole result as one JSON object on standard output.")
@clear_errors
def show(run: Path, database: Path | None, as_json: bool) -> None:
    """Show what the RUN of `optimize` offers: the changed texts, the costs and the change to expect.

    With --db: exit status 1 when more answers fail since the application than in the equally long time before.
    """
    from memtrace_otel.repair.apply import applied
    from memtrace_otel.repair.optimize import read_result
    from memtrace_otel.repair.subjects import RepairError

    try:
        result, entries = read_result(run), applied(run)
    except RepairError as error:
        fail(str(error))
    if as_json:
        click.echo(printable_json(result))
    else:
        _print_run(result)
        for entry in entries:
            click.echo(f"applied to {entry['to']}")
    if database is not None:
        if not entries:
            fail(f"nothing of {run} is applied")
        _watch(database, entries[-1]["time"])


def _watch(database: Path, since: int) -> None:
    from memtrace_otel.repair.plan import plan_of_store, shown
    from memtrace_otel.sources import SqliteStore

    with SqliteStore.open(database, create=False) as store, progress_bar("attribute") as progress:
        plan = plan_of_store(store, since, progress=progress)
    click.echo(f"failed answers before: {shown(plan['trend']['before'])}; after: {shown(plan['answers'])}", err=True)
    if plan["trend"]["change"] == "more":
        fail("memtrace:repair:regressed: more answers fail since the application", NOTHING_FOUND)


@repair.command(epilog=examples("memtrace-otel repair apply repair-run --to prompts.json"))
@_run
@click.option("--to", required=True, metavar="FILE|env", help="A JSON file with the texts, or shell commands for the "
              "environment on standard output.")  # fmt: skip
@click.option("--yes", is_flag=True, help="Do not ask.")
@clear_errors
def apply(run: Path, to: str, yes: bool) -> None:
    """Apply the offer of RUN after a question, and record the application."""
    from memtrace_otel.repair.apply import ENVIRONMENT, apply, assignments
    from memtrace_otel.repair.optimize import read_result
    from memtrace_otel.repair.page import offered
    from memtrace_otel.repair.subjects import RepairError

    try:
        texts = offered(run)
        if not yes:
            result = read_result(run)
            _print_changes(result, err=True)
            click.echo(f"test, unseen conversations: {_paired(result['test'])}", err=True)
            click.confirm(f"apply {', '.join(texts)} to {to}?", abort=True, err=True)
        apply(run, texts, to)
    except RepairError as error:
        fail(str(error))
    if to == ENVIRONMENT:
        click.echo("\n".join(assignments(texts)))


@repair.command(epilog=examples("memtrace-otel repair revert repair-run"))
@_run
@click.option("--yes", is_flag=True, help="Do not ask.")
@clear_errors
def revert(run: Path, yes: bool) -> None:
    """Take back the last application of RUN: the file gets its earlier text."""
    from memtrace_otel.repair.apply import revert
    from memtrace_otel.repair.subjects import RepairError

    if not yes:
        click.confirm(f"revert the last application of {run}?", abort=True, err=True)
    try:
        click.echo(f"reverted {revert(run)}")
    except RepairError as error:
        fail(str(error))


@contextmanager
def _watched() -> Generator[Progress]:
    """Show the loop on standard error as it goes: a table on a terminal, else a line for each proposal."""
    from rich.console import Console, Group
    from rich.live import Live

    console = Console(stderr=True, markup=False, emoji=False, highlight=False)
    if console.is_terminal:
        with Live(console=console, transient=True, auto_refresh=False) as live:
            yield lambda kind, loop: live.update(
                Group(_table(loop, _LIVE_ROWS), f"{kind}: {_spent(loop)}"), refresh=True
            )
        return
    told: Counter[str] = Counter()

    def tell(kind: str, loop: Result) -> None:
        for row in _rows(loop)[1 + told[kind] :]:
            told[kind] += 1
            number, parent, component, minibatch, _, result = row
            name, result = (f"candidate {number}", "accepted") if number else ("rejected", result)
            said = f"{name} from {parent}, {component}, minibatch {minibatch or 'not run'}, {result}"
            click.echo(f"{kind}: {said}; {_spent(loop)}", err=True)

    yield tell


def _spent(loop: Result) -> str:
    """Return what a loop took, each with its bound where there is one."""
    spent = {"evaluations": loop["evaluations"], **loop["spent"]}
    bounds = {name: f" of {bound:g}" if bound else "" for name, bound in loop["budget"].items()}
    return ", ".join(f"{used:.{4 * (name == 'cost')}f}{bounds[name]} {name}" for name, used in spent.items())


def _rows(loop: Result) -> list[tuple[str, ...]]:
    """Return a row for the texts in use and for each proposal: candidate, parent, component, right answers of the
    minibatch and of the validation questions, and the failures that are left or the gate that rejected."""
    from memtrace_otel.model.printable import one_line

    texts = [one["texts"] for one in loop["candidates"]]
    numbers = iter(loop["candidates"])
    proposals: list[dict[str, Any]] = [{}, *loop["tried"]]
    rows: list[tuple[str, ...]] = []
    for tried in proposals:
        minibatch = f"{tried['before']} -> {tried['after']}" if tried.get("count") else ""
        if tried.get("gate"):
            reason = one_line(f"{tried['gate']}: {tried['reason']}")
            rows.append(("", str(texts.index(tried["parent"])), tried["component"], minibatch, "", reason))
            continue
        one = next(numbers)
        number = f"{one['number']}{' *' if one['number'] == loop.get('best') else ''}"
        parent = str(one["parent"]) if one["changed"] else ""
        types = ", ".join(f"{count} × {type}" for type, count in one["by_type"].items())
        component = ", ".join(one["changed"]) or "in use"
        rows.append((number, parent, component, minibatch, f"{one['right']}/{one['count']}", types))
    return rows


def _table(loop: Result, most: int = 0) -> Table:
    """Return a table of the last rows, of all rows without `most`."""
    from rich.table import Table

    table = Table("candidate", "parent", "component", "minibatch", "validation", "left, or the gate that rejected")
    for row in _rows(loop)[-most:]:
        table.add_row(*row)
    return table


def _print_run(result: Result) -> None:
    from memtrace_otel.repair.page import refusal

    loop = result["attribution"]
    print_table(_table(loop))
    _print_changes(result)
    before, after = loop["tokens_per_run"]
    click.echo(f"\ntokens per run: {before:.0f} in use, {after:.0f} with the best candidate")
    click.echo(f"spent in the loop with attribution: {_spent(loop)}")
    total = ", ".join(f"{used:.{4 * (name == 'cost')}f} {name}" for name, used in result["spent"].items())
    click.echo(f"spent in all, with the ablation and the test: {total}")
    click.echo(f"validation: {_paired(loop['validation'])}")
    if "test" in result:
        click.echo(f"test, unseen conversations: {_paired(result['test'])}")
    if "ablation" in result:
        other = result["ablation"]
        reached = ["never" if one["needed"] is None else f"after {one['needed']} evaluations" for one in (loop, other)]
        click.echo(f"the score of the best candidate was reached {reached[0]}; without attribution {reached[1]}")
    reason = refusal(result)
    click.echo(f"not offered: {reason}" if reason else "offered")


def _print_changes(result: Result, err: bool = False) -> None:
    """Print a diff of each component that the best candidate changes."""
    from memtrace_otel.model.printable import printable
    from memtrace_otel.repair.page import changes

    for name, lines in changes(result):
        click.secho(f"\n{name}", bold=True, err=err)
        for line in lines[2:]:
            click.secho(printable(line), fg={"+": "green", "-": "red"}.get(line[:1]), err=err)


def _paired(test: dict[str, Any]) -> str:
    low, high = 100 * test["low"], 100 * test["high"]
    return (
        f"{test['a']} -> {test['b']} of {test['cases']} right, {test['only_b']} gained, {test['only_a']} lost, "
        f"p = {test['p']:.3g}; change {100 * test['change']:+.0f} points [{low:+.0f}, {high:+.0f}]"
    )
