"""`repair`: what to change in a memory system, and a closed loop that tests each change."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from memtrace_otel.cli.errors import NOTHING_FOUND, clear_errors, fail
from memtrace_otel.cli.options import database_option, examples, since_option
from memtrace_otel.cli.output import print_table, progress_bar
from memtrace_otel.model.printable import printable_json

if TYPE_CHECKING:
    from memtrace_otel.repair.plan import Plan


@click.group()
def repair() -> None:
    """Find out what to change in a memory system, and test changes."""


@repair.command(
    epilog=examples("memtrace-otel repair plan --db run.db", "memtrace-otel repair plan --since 7d --markdown")
)
@database_option
@since_option
@click.option("--json", "form", flag_value="json", help="One JSON object on standard output.")
@click.option("--markdown", "form", flag_value="markdown", help="Markdown on standard output.")
@clear_errors
def plan(database: Path, since: int | None, form: str | None) -> None:
    """Point each failure to the component that would have to change.

    The components are the extraction, update and answering prompts, k, threshold, filter, reranker and content limit.
    Failures of the judge, of the annotation and of unknown cause point to no component. --since compares the period
    with the equally long period before. Nothing is written, and no model is asked.
    """
    from memtrace_otel.repair.plan import markdown, plan_of_store
    from memtrace_otel.sources import SqliteStore

    with SqliteStore.open(database, create=False) as store, progress_bar("attribute") as progress:
        found = plan_of_store(store, since or 0, progress=progress)
    if not found["answers"]["hits"]:
        fail(f"no failing answer in {database}", NOTHING_FOUND)
    if form == "json":
        click.echo(printable_json(found))
    elif form == "markdown":
        click.echo(markdown(found), nl=False)
    else:
        _print_plan(found)


def _print_plan(plan: Plan) -> None:
    from rich.table import Table

    from memtrace_otel.repair.plan import shown

    table = Table("failure type", "failures [95 % interval]", title=f"failed answers: {shown(plan['answers'])}")
    for type, one in plan["by_type"].items():
        table.add_row(type, shown(one))
    print_table(table)
    table = Table("component", "failures", "what would have to change", "exemplar", title="what to change")
    for one in plan["components"]:
        changes = "\n".join(f"{change['failures']} × {change['advice'] or 'no advice'}" for change in one["changes"])
        trace = "\n".join(example["trace_id"][:16] for example in one["examples"])
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
