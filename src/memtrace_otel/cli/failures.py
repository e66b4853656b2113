"""`attribute`, `report`: what made answers fail."""

from __future__ import annotations

import json
import logging
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource
from rich.console import Console

from memtrace_otel.cli.errors import NOTHING_FOUND, clear_errors, fail
from memtrace_otel.cli.options import (
    DAY,
    check_trace_ids,
    database_option,
    examples,
    look_in_option,
    since_option,
    source_option,
)
from memtrace_otel.cli.output import progress_bar

if TYPE_CHECKING:
    from memtrace_otel.annotate import Annotation, AnnotationStore, Delivery
    from memtrace_otel.graph import EvolutionGraph
    from memtrace_otel.model import Verdict
    from memtrace_otel.pipeline.diagnose import Diagnosis
    from memtrace_otel.report.summary import VerdictSummary

    Found = tuple[Verdict, VerdictSummary]

_logger = logging.getLogger(__name__)
_NAMED = 3
"""Answers that are named where many lack their span."""


@click.command(
    epilog=examples(
        "memtrace-otel attribute --all",
        "memtrace-otel attribute 4bf92f3577b34da6a3ce929d0e0e4736 --json",
        "OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4317 memtrace-otel attribute --all",
        "memtrace-otel attribute --source tempo+http://localhost:3200 --all --since 2h",
        "memtrace-otel attribute --source jaeger+http://localhost 4bf92f3577b34da6a3ce929d0e0e4736",
        "memtrace-otel attribute --all --db imported.db --look-in jaeger+http://localhost",
    )
)
@click.argument("trace_ids", nargs=-1, metavar="[TRACE_ID]...", callback=check_trace_ids)
@click.option("--all", "everything", is_flag=True, help="Every failing trace of the database, or of the source.")
@database_option
@source_option
@since_option
@look_in_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object per failing trace on standard output.")
@click.option("--annotate/--no-annotate", default=True, show_default=True, help="Write the verdicts as spans.")
@clear_errors
def attribute(
    trace_ids: tuple[str, ...],
    everything: bool,
    database: Path,
    source: str,
    since: int | None,
    look_in: str,
    as_json: bool,
    annotate: bool,
) -> None:
    """Name the decisive operation and the failure type of failed answers.

    Verdicts are written to the database as marker spans and, when OTEL_EXPORTER_OTLP_ENDPOINT is set, sent to that
    backend, each once. With --source, traces are read from a tracing backend, there is no database, and what the
    backend holds already is not sent again. Metrics go where OTEL_METRICS_EXPORTER says.
    """
    from memtrace_otel.annotate import RejectedError
    from memtrace_otel.annotate.target import read_targets
    from memtrace_otel.monitoring import export_metrics

    if everything == bool(trace_ids):
        raise click.UsageError("give either trace ids or --all")
    if since is not None and not (source and everything):
        raise click.UsageError("--since goes with --source and --all")
    if look_in and source:
        raise click.UsageError("--look-in goes with --db: with --source, that backend is looked into anyway")
    named = click.get_current_context().get_parameter_source("database")
    if source and named is ParameterSource.COMMANDLINE:
        raise click.UsageError("give either --db or --source")
    export_metrics()
    if annotate:
        read_targets()  # a setting that cannot be used is told now
    found: list[Found] = []
    try:
        if source:
            sent = _from_backend(source, trace_ids, since, annotate, found)
        else:
            sent = _from_database(database, trace_ids, annotate, look_in, found)
    finally:  # a receiver that is down takes no verdict away
        _print(found, as_json)
    if sent.traces is not None:
        click.echo(f"sent {sent.spans} spans and {sent.events} events to {sent.traces}", err=True)
    elif source and annotate and found:
        click.echo("nothing was sent: OTEL_EXPORTER_OTLP_ENDPOINT is not set", err=True)
    lacking = [verdict.failure.answer_span.origin for verdict, _ in found if verdict.failure.lacks_answer]
    if annotate and lacking:
        where = f"{source or database}: {', '.join(lacking[:_NAMED])}{', ...' if lacking[_NAMED:] else ''}"
        many = "a verdict" if len(lacking) == 1 else f"{len(lacking)} verdicts"
        click.echo(f"nothing was written for {many}: the answering span is not in {where}", err=True)
    if sent.rejections:
        raise RejectedError(sent)
    if not found:
        asked = (source or database) if everything else ", ".join(trace_ids)
        searched = source and (everything or source.startswith("tempo"))
        later = "; a backend's search finds what was sent some seconds later" if searched else ""
        fail(f"no failing answer in {asked}{later}", NOTHING_FOUND)


def _from_database(
    database: Path, trace_ids: tuple[str, ...], annotate: bool, look_in: str, found: list[Found]
) -> Delivery:
    """Add what is found to `found`, send it."""
    from memtrace_otel.annotate import Delivery, LookingAnnotations
    from memtrace_otel.annotate.target import read_target
    from memtrace_otel.pipeline.diagnose import diagnose, record
    from memtrace_otel.sources import NearbySources, SqliteStore, open_source

    started = time.time_ns()
    annotations: list[Annotation] = []
    target = read_target("traces") if annotate else None
    with (
        SqliteStore.open(database, create=False) as store,
        closing(open_source(look_in)) if look_in else nullcontext() as backend,
        store.turn() if annotate else nullcontext(),
    ):
        with closing(NearbySources(target.endpoint)) if target and not backend else nullcontext() as nearby:
            looked = backend or nearby
            kept: AnnotationStore = LookingAnnotations(store, looked.whole) if looked else store
            with progress_bar("attribute") as progress:
                for diagnosis in diagnose(store, trace_ids, progress=progress):
                    if backend:
                        backend.api.allow(len(diagnosis.verdicts))
                    made = record(kept, diagnosis, started=started) if annotate else []
                    found += _found(diagnosis, made)
                    annotations += made
        is_first = target and not store.has_sent(target.ledger)
        if nearby and is_first and any(made.spans for made in annotations):
            twice = "those that another database has sent there may be shown twice unless --look-in URL is given"
            said = f"what {nearby.shows} shows is not sent again" if nearby.shows else twice
            click.echo(f"first verdicts from {database} to {target}: {said}", err=True)
        return _deliver(annotations, kept) if annotate else Delivery()


def _from_backend(
    url: str, trace_ids: tuple[str, ...], since: int | None, annotate: bool, found: list[Found]
) -> Delivery:
    """Add what is found to `found`, send it."""
    from memtrace_otel.annotate import BackendAnnotations, Delivery, SendError
    from memtrace_otel.pipeline.diagnose import diagnose_backend, record
    from memtrace_otel.sources import SourceLimitError, open_source
    from memtrace_otel.sources.ahead import TOGETHER

    started = time.time_ns()
    total, failed, is_down = Delivery(), None, False
    with closing(open_source(url)) as source, progress_bar("attribute") as progress:
        reading = source.keeping()
        reading.api.allow(TOGETHER)
        asked = trace_ids or reading.failing(started - DAY if since is None else since)
        for diagnosis in diagnose_backend(reading, asked, known=not trace_ids, progress=progress):
            store = BackendAnnotations(source.whole)  # as it is now
            reading.api.allow_at_least(len(diagnosis.verdicts))  # what was read for the verdicts may have left nothing
            try:
                made = record(store, diagnosis, started=started) if annotate else []
            except SourceLimitError as error:
                _logger.warning("%d verdicts are not sent: %s", len(diagnosis.verdicts), error)
                made = []
            found += _found(diagnosis, made)
            if annotate and not is_down:
                try:
                    total += _deliver(made, store)
                except SendError as error:  # the first is told at the end, as are all verdicts
                    if failed is not None:
                        _logger.warning("%s", error)
                    failed, is_down = failed or error, not error.refused
    if failed is not None:
        raise failed
    return total


def _deliver(made: Sequence[Annotation], store: AnnotationStore) -> Delivery:
    """Send as `deliver` does; what the receiver rejects holds up nothing else."""
    from memtrace_otel.annotate import RejectedError, deliver

    try:
        return deliver(made, store)
    except RejectedError as error:
        return error.delivery


def _found(diagnosis: Diagnosis, made: list[Annotation]) -> list[Found]:
    from memtrace_otel.report.summary import summarise

    verdicts = [annotation.verdict for annotation in made] or diagnosis.verdicts
    return [(verdict, summarise(verdict, diagnosis.graph)) for verdict in verdicts]


def _print(found: list[Found], as_json: bool) -> None:
    from memtrace_otel.attribution import verdict_json

    found.sort(key=lambda one: one[0].failure.time_order)
    if as_json:
        for verdict, _ in found:
            click.echo(json.dumps(verdict_json(verdict), ensure_ascii=False))
    elif found:
        from memtrace_otel.report.console import verdict_table

        Console().print(verdict_table([summary for _, summary in found]))


@click.command(epilog=examples("memtrace-otel report", "memtrace-otel report --db run.db -o run.html"))
@click.argument("trace_ids", nargs=-1, metavar="[TRACE_ID]...", callback=check_trace_ids)
@database_option
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    default=Path("report.html"),
    show_default=True,
    help="One self-contained HTML file.",
)
@click.option("--title", default="Memory failures", show_default=True, help="Heading of the report.")
@clear_errors
def report(trace_ids: tuple[str, ...], database: Path, output: Path, title: str) -> None:
    """Write an HTML report on the failing answers (no TRACE_ID: on all)."""
    from memtrace_otel.pipeline.diagnose import diagnose
    from memtrace_otel.report import render_report, write_private
    from memtrace_otel.sources import SqliteStore

    verdicts: list[Verdict] = []

    def found() -> Iterator[tuple[Verdict, EvolutionGraph]]:
        for diagnosis in diagnose(store, trace_ids, progress=progress):
            verdicts.extend(diagnosis.verdicts)
            yield from ((verdict, diagnosis.graph) for verdict in diagnosis.verdicts)

    with SqliteStore.open(database, create=False) as store, progress_bar("attribute") as progress:
        page = render_report(found(), title=title, source=str(database))
    write_private(output, page)
    click.echo(f"{output}: {len(verdicts)} failing answers")
    if not verdicts:
        sys.exit(NOTHING_FOUND)
