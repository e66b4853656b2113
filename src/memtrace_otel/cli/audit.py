"""The command `audit`: expected answers that the recorded conversations contradict or do not support."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from memtrace_otel.cli.errors import NOTHING_FOUND, clear_errors, fail
from memtrace_otel.cli.options import database_option, examples, period_option
from memtrace_otel.cli.output import progress_bar

if TYPE_CHECKING:
    from memtrace_otel.attribution.audit import Doubt

_SHOWN_TEXT = 100
"""Characters of a text in the table."""


@click.command(
    epilog=examples(
        "memtrace-otel audit --db run.db",
        "memtrace-otel audit --csv > doubts.csv",
        "memtrace-otel audit --queue && memtrace-otel ui",
    )
)
@database_option
@period_option
@click.option("--least", type=click.FloatRange(0, 1), default=0.0, show_default=True, help="Least `sure` of a doubt.")
@click.option("--json", "form", flag_value="json", help="One JSON object per doubt on standard output.")
@click.option("--csv", "form", flag_value="csv", help="CSV on standard output.")
@click.option("--queue", is_flag=True, help="Put the doubts into the review queue, in the place of an earlier audit.")
@clear_errors
def audit(database: Path, since: int | None, least: float, form: str | None, queue: bool) -> None:
    """List questions whose expected answer the conversation contradicts or does not support.

    Every judged answer with an expected answer is compared with the messages of its memory, by words. A doubt has a
    kind (contradicted, other time, other owner, not supported), a number `sure` from 0 to 1, and the sentences.
    Expected answers that are yes, no, a conclusion or "not known" are left out. Without --since, the whole database
    is read.

    Exit status: 0 when expected answers are doubted, 1 when none is, 2 for bad arguments or input.
    """
    from memtrace_otel.model.printable import printable_json
    from memtrace_otel.pipeline.audit import audit as find_doubts
    from memtrace_otel.web.exchange import failures_csv
    from memtrace_otel.web.store import PageStore

    with PageStore.open(database, create=False) as store:
        with progress_bar("audit") as progress:
            found = find_doubts(store, since=since or 0, progress=progress)
        doubts = [one for one in found.doubts if one.sure >= least]
        if queue:
            from memtrace_otel.web.reviewing import propose

            store.replace_proposals(propose(doubts))
    if not found.judged:
        fail(f"no answer with an expected answer in {database}", NOTHING_FOUND)
    if form == "json":
        for one in doubts:
            click.echo(printable_json(one.json()))
    elif form == "csv":
        click.echo(failures_csv(_row(one) for one in doubts), nl=False)
    elif doubts:
        _print(doubts)
    told = f"{len(doubts)} of {found.compared} expected answers doubted, {found.judged - found.compared} not compared"
    click.echo(f"{told}{'; they are in the review queue' if queue and doubts else ''}", err=True)
    if not doubts:
        raise SystemExit(NOTHING_FOUND)


def _row(one: Doubt) -> dict[str, Any]:
    sentences = " | ".join(quote.text for quote in one.quotes)
    return one.json() | {"pieces": " | ".join(one.pieces), "sentences": sentences}


def _print(doubts: list[Doubt]) -> None:
    from rich.table import Column, Table

    from memtrace_otel.cli.output import print_table
    from memtrace_otel.model.printable import one_line

    headings = ("question", "expected", "not told, or told otherwise", "sentence")
    table = Table("sure", "doubt", *headings, Column("trace", no_wrap=True, min_width=32), box=None, pad_edge=False)
    for one in doubts:
        said = next((quote.text for quote in one.quotes), "")
        texts = (one.failure.question, one.failure.expected, ", ".join(one.pieces), said)
        shown = (one_line(text, _SHOWN_TEXT) for text in texts)
        table.add_row(f"{one.sure:.2f}", str(one.kind), *shown, one.failure.trace_id)
    print_table(table)
