"""The commands `ui` and `review`: pages on a database, and people's reviews as files."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from memtrace_otel.cli.errors import NOTHING_FOUND, clear_errors, fail
from memtrace_otel.cli.options import database_option, examples, no_database, page_option

if TYPE_CHECKING:
    from memtrace_otel.pages import Page

_FORMS = ("jsonl", "csv", "label-studio", "memtracebench", "openinference", "gen_ai.evaluation.result")


@click.command(
    epilog=examples(
        "memtrace-otel ui --db run.db",
        "memtrace-otel ui --db run.db --ui jaeger=http://localhost:16686",
        "memtrace-otel ui --db run.db --host 0.0.0.0 --annotators annotators.txt",
    )
)
@database_option
@click.option("--host", default="127.0.0.1", show_default=True, help="Listening address; off loopback --annotators.")
@click.option("--port", type=click.IntRange(0, 65535), default=4319, show_default=True, help="0: any free port.")
@click.option(
    "--annotators",
    type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="File with `name token` a line: only these people may read and review.",
)
@page_option
@clear_errors
def ui(database: Path, host: str, port: int, annotators: Path | None, page: Page | None) -> None:
    """Serve pages on a database: failures, memories, and the review of answers by people.

    Off loopback each annotator needs a token. The pages change only reviews, feedback and published verdicts. Needs
    `pip install 'memtrace-otel[serve]'`.
    """
    try:
        from memtrace_otel.serve.showing import run
    except ModuleNotFoundError as error:
        if error.name not in ("starlette", "uvicorn"):
            raise
        fail(f"{error.name} is missing: pip install 'memtrace-otel[serve]', in a checkout pip install '.[serve]'")

    def ready(address: str) -> None:
        click.echo(f"memtrace-otel: pages on http://{address}/", err=True)

    try:
        run(database, host, port, annotators, page, ready)
    except ValueError as error:
        fail(str(error))


@click.group(
    epilog=examples("memtrace-otel review agreement", "memtrace-otel review export --format csv -o reviews.csv")
)
def review() -> None:
    """Read and write the reviews of people. The pages of `memtrace-otel ui` make reviews."""


@review.command(epilog=examples("memtrace-otel review export", "memtrace-otel review export --format label-studio"))
@database_option
@click.option("--format", "form", type=click.Choice(_FORMS), default="jsonl", show_default=True, help="Form.")
@click.option(
    "-o", "--output", type=click.Path(dir_okay=False, path_type=Path), callback=no_database, help="File to write."
)
@clear_errors
def export(database: Path, form: str, output: Path | None) -> None:
    """Write every finished review; with --format label-studio also a task per answer of the queue."""
    from memtrace_otel.report import write_private
    from memtrace_otel.web.exchange import export_reviews
    from memtrace_otel.web.store import PageStore

    with PageStore.open(database, create=False) as store:
        text = export_reviews(store, form)
    if output:
        write_private(output, text)
    else:
        click.echo(text, nl=False)


@review.command(
    "import",
    epilog=examples(
        "memtrace-otel review import reviews.jsonl", "memtrace-otel review import locomo.json.gz --as gold"
    ),
)
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--as", "annotator", default="imported", show_default=True, help="Annotator of reviews without a name.")
@database_option
@clear_errors
def import_(file: Path, annotator: str, database: Path) -> None:
    """Store the reviews of a file in a form of `review export`, or the annotations of a MemTraceBench graph.

    Every operation must be in the database. All reviews of the file are stored, or none.
    """
    from memtrace_otel.web.exchange import ExchangeError, import_reviews
    from memtrace_otel.web.store import PageStore

    with PageStore.open(database, create=False) as store:
        try:
            count = import_reviews(store, file, annotator)
        except ExchangeError as error:
            fail(str(error))
    click.echo(f"{count} review{'s' * (count != 1)} in {database}")


@review.command(epilog=examples("memtrace-otel review agreement --json"))
@database_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object.")
@clear_errors
def agreement(database: Path, as_json: bool) -> None:
    """Show how far annotators agree with each other and with the verdicts.

    Krippendorff's alpha needs `pip install 'memtrace-otel[review]'`.
    """
    from dataclasses import asdict

    from memtrace_otel.model.printable import one_line, printable_json
    from memtrace_otel.web.agreement import agreement as measure
    from memtrace_otel.web.store import PageStore

    with PageStore.open(database, create=False) as store:
        reviews = store.reviews()
    if not reviews:
        fail(f"no review in {database}", NOTHING_FOUND)
    found = measure(reviews)
    if as_json:
        click.echo(printable_json(asdict(found)))
        return
    click.echo(f"Krippendorff's alpha (nominal): {_number(found.alpha)}")
    for pair in found.pairs:
        names = one_line(f"{pair.first}, {pair.second}")
        click.echo(f"{names}: {pair.agreed} of {pair.answers} labels equal, Cohen's kappa {_number(pair.kappa)}")
    click.echo(f"verdicts accepted by at least one annotator: {found.accepted} of {found.compared}")
    click.echo(f"by blind reviews alone: {found.blind_accepted} of {found.blind_compared}")
    for rule, person, count in found.confusion:
        click.echo(f"verdict {rule}, person {person}: {count}")


def _number(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.3f}"


@review.command(epilog=examples("memtrace-otel review publish"))
@database_option
@clear_errors
def publish(database: Path) -> None:
    """Make reviews on which all annotators agree verdicts of method `human`, and send them as `attribute` does.

    An adjudication counts in the place of the reviews. Such a verdict takes precedence over every other on the answer.
    A published verdict that reviews support no more is withdrawn: the verdict of the machine becomes the newest again.
    """
    from memtrace_otel.web.reviewing import Reviewing
    from memtrace_otel.web.store import PageStore

    with PageStore.open(database, create=False) as store:
        published = Reviewing(store).publish(most=1_000_000)
    counts = f"{published.verdicts} new verdicts of people, {published.withdrawn} withdrawn"
    click.echo(f"{counts}, {published.delivery.spans} spans sent")
    if published.problem:
        fail(published.problem)
    if not published.verdicts + published.withdrawn:
        sys.exit(NOTHING_FOUND)
