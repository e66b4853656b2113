"""The commands `answers`, `attribute` and `report`: the recorded answers, and the verdicts on the failed ones."""

from __future__ import annotations

import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, closing, contextmanager
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click
from click.core import ParameterSource
from rich.console import Console

from memtrace_otel.cli.errors import NOTHING_FOUND, clear_errors, fail
from memtrace_otel.cli.options import (
    DAY,
    ask_with,
    check_trace_ids,
    database_option,
    endpoint_within,
    examples,
    look_in_option,
    model_options,
    model_reader,
    no_database,
    replayer_option,
    since_option,
    source_option,
    verifier,
)
from memtrace_otel.cli.output import progress_bar, tell_model

if TYPE_CHECKING:
    from memtrace_otel.annotate import Annotation, Delivery
    from memtrace_otel.attribution.replay import Cost, Verifier
    from memtrace_otel.graph import EvolutionGraph
    from memtrace_otel.model import Verdict, VerdictLog
    from memtrace_otel.pipeline.diagnose import Diagnosis
    from memtrace_otel.report.summary import VerdictSummary
    from memtrace_otel.sources import TraceSource

    Found = tuple[Verdict, VerdictSummary]
    Diagnose = Callable[..., Iterator[Diagnosis]]

_logger = logging.getLogger(__name__)
_NAMED = 3
"""Answers without a span that a message names at most."""
_SHOWN_TEXT = 100
"""Characters of a question or an answer in the list of answers."""


@click.command(
    epilog=examples(
        "memtrace-otel attribute --all",
        "memtrace-otel attribute 4bf92f3577b34da6a3ce929d0e0e4736 --json",
        "OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4317 memtrace-otel attribute --all",
        "memtrace-otel attribute --source tempo+http://localhost:3200 --all --since 2h",
        "memtrace-otel attribute --source jaeger+http://localhost 4bf92f3577b34da6a3ce929d0e0e4736",
        "memtrace-otel attribute --all --db imported.db --look-in jaeger+http://localhost",
        "MEMTRACE_MODEL=gpt-5.4 memtrace-otel attribute --all --method rules+model",
        "MEMTRACE_MODEL=gpt-5.4 memtrace-otel attribute --all --method rules+agent --concurrency 8",
        "memtrace-otel attribute --all --verify --dry-run",
    )
)
@click.argument("trace_ids", nargs=-1, metavar="[TRACE_ID]...", callback=check_trace_ids)
@click.option("--all", "everything", is_flag=True, help="Every failing trace of the database, or of the source.")
@database_option
@source_option
@since_option
@look_in_option
@model_options
@click.option(
    "--verify",
    is_flag=True,
    help="Undo the blamed fault, run again what follows, and look whether the answer flips.",
)
@click.option("--dry-run", is_flag=True, help="With --verify: say what the calls may cost, and call nothing.")
@replayer_option
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
    method: str,
    concurrency: int,
    max_cost: float | None,
    verify: bool,
    dry_run: bool,
    replayers: tuple[str, ...],
    as_json: bool,
    annotate: bool,
) -> None:
    """Name the decisive operation and the failure type of failed answers.

    Verdicts are written to the database as marker spans. When OTEL_EXPORTER_OTLP_ENDPOINT is set, each verdict is sent
    there once. With --source, traces are read from a tracing backend without a database. Verdicts that the backend
    shows are not sent again. Metrics go where OTEL_METRICS_EXPORTER says.
    """
    from memtrace_otel.annotate import RejectedError
    from memtrace_otel.annotate.target import read_targets
    from memtrace_otel.pipeline.diagnose import diagnose
    from memtrace_otel.pipeline.export_metrics import export_metrics

    if everything == bool(trace_ids):
        raise click.UsageError("give either trace ids or --all")
    if since is not None and not (source and everything):
        raise click.UsageError("--since goes with --source and --all")
    if look_in and source:
        raise click.UsageError("--look-in goes with --db: with --source, the backend is read anyway")
    named = click.get_current_context().get_parameter_source("database")
    if source and named is ParameterSource.COMMANDLINE:
        raise click.UsageError("give either --db or --source")
    if (dry_run or replayers) and not verify:
        raise click.UsageError("--dry-run and --replayer go with --verify")
    endpoint = endpoint_within(max_cost)
    ask = ask_with(method, endpoint)
    runs_again = None
    if verify:
        runs_again = verifier(endpoint, model_reader(endpoint) if ask else None, replayers, asks=not dry_run)
    costs = _Costs(runs_again) if runs_again and dry_run else None
    asking = partial(diagnose, ask=None if dry_run else ask, concurrency=concurrency, refine=costs or runs_again)
    annotate = annotate and not dry_run
    export_metrics()
    if annotate:
        read_targets()  # reports an unusable setting before the work
    found: list[Found] = []
    try:
        with _opened(database, source, look_in, annotate) as (opened, log):
            sent = _attribute(opened, log, trace_ids, _since(since, source), annotate, found, asking)
    finally:  # the verdicts are printed when the receiver is down, too
        endpoint.close()
        if not dry_run:
            _print(found, as_json)
    if costs:
        click.echo(costs.told())
    elif ask and found:
        tell_model(endpoint, [(verdict.method, verdict.model_problem) for verdict, _ in found])
    if verify:
        _tell_replays(found)
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
        later = "; a backend's search finds spans some seconds after they were sent" if searched else ""
        fail(f"no failing answer in {asked}{later}", NOTHING_FOUND)


def _tell_replays(found: list[Found]) -> None:
    """Say the outcomes of the replays and what they cost."""
    from memtrace_otel.semconv import ReplayOutcome

    replays = [verdict.replay for verdict, _ in found if verdict.replay]
    if replays:
        outcomes = Counter(str(replay.outcome) for replay in replays)
        calls, tokens = sum(replay.calls for replay in replays), sum(replay.tokens for replay in replays)
        told = ", ".join(f"{count} {outcome}" for outcome, count in outcomes.most_common())
        click.echo(f"run again: {told}; {calls} chat calls, {tokens} tokens", err=True)
    for reason, count in Counter(r.reason for r in replays if r.outcome == ReplayOutcome.NOT_REPLAYABLE).items():
        click.echo(f"not replayable, {count}: {reason}", err=True)


class _Costs:
    """Stands in for the replay of a dry run: adds up what the replays may cost."""

    def __init__(self, runs_again: Verifier) -> None:
        self._runs_again = runs_again
        self._costs: list[Cost] = []

    def __call__(self, graph: EvolutionGraph, verdict: Verdict) -> Verdict:
        self._costs.append(self._runs_again.cost(graph, verdict))
        return verdict

    def told(self) -> str:
        """Return what all replays together may cost."""
        costs = [cost for cost in self._costs if not cost.problem]
        least, most, tokens, texts = (
            sum(getattr(cost, name) for cost in costs) for name in ("least_calls", "most_calls", "most_tokens", "texts")
        )
        lines = [f"{len(costs)} of {len(self._costs)} failing answers can run again: {least} to {most} chat calls, "
                 f"at most about {tokens} tokens of prompts, {2 * texts} texts to embed at most"]  # fmt: skip
        problems = Counter(cost.problem for cost in self._costs if cost.problem)
        return "\n".join((*lines, *(f"not replayable, {count}: {problem}" for problem, count in problems.items())))


def _since(since: int | None, source: str) -> int:
    """Return how far back failures count: a backend is searched for a day, a database is read whole."""
    if since is not None:
        return since
    return time.time_ns() - DAY if source else 0


@contextmanager
def _opened(database: Path, url: str, look_in: str, annotate: bool) -> Generator[tuple[TraceSource, VerdictLog]]:
    """Open the source and the log of its verdicts. Warn after the first verdicts that a database sends to a target."""
    from memtrace_otel.annotate import BackendLog, MemoryLog
    from memtrace_otel.annotate.target import read_target
    from memtrace_otel.pipeline.diagnose import shown_by
    from memtrace_otel.sources import SqliteStore, open_source

    with ExitStack() as stack:
        if url:
            backend = stack.enter_context(closing(open_source(url)))
            yield backend, BackendLog(shown_by(backend), MemoryLog())
            return
        store = stack.enter_context(SqliteStore.open(database, create=False))
        target = read_target("traces") if annotate else None
        if annotate:
            stack.enter_context(store.turn())
        if look_in:
            backend = stack.enter_context(closing(open_source(look_in)))
            yield store, BackendLog(shown_by(backend), store)
        elif target:
            is_first = not store.has_sent(target.ledger)
            try:
                yield store, store
            finally:
                if is_first and store.verdicts():
                    twice = "verdicts already sent from another database can appear twice; --look-in URL prevents this"
                    click.echo(f"first verdicts from {database} to {target}: {twice}", err=True)
        else:
            yield store, store


def _attribute(
    source: TraceSource,
    log: VerdictLog,
    trace_ids: tuple[str, ...],
    since: int,
    annotate: bool,
    found: list[Found],
    asking: Diagnose,
) -> Delivery:
    """Attribute, add the verdicts to `found`, write them to the log and send them. The first error is raised last."""
    from memtrace_otel.annotate import Delivery, RejectedError, SendError, deliver
    from memtrace_otel.pipeline.diagnose import PartialTraceError, record

    started = time.time_ns()
    total, failed, is_down = Delivery(), None, False
    with progress_bar("attribute") as progress:
        for diagnosis in asking(source, log, trace_ids, since=since, progress=progress):
            made: list[Annotation] = []
            try:
                made = record(log, diagnosis, started=started) if annotate else []
            except PartialTraceError as error:
                _logger.warning("%d verdicts are not sent: %s", len(diagnosis.verdicts), error)
            found += _found(diagnosis, made)
            if not annotate or is_down:
                continue
            try:
                total += deliver(made, log)
            except RejectedError as error:
                total += error.delivery
            except SendError as error:
                if failed is not None:
                    _logger.warning("%s", error)
                failed, is_down = failed or error, not error.refused
    if failed is not None:
        raise failed
    return total


def _found(diagnosis: Diagnosis, made: list[Annotation]) -> list[Found]:
    from memtrace_otel.report.summary import summarise

    verdicts = [annotation.verdict for annotation in made] or diagnosis.verdicts
    return [(verdict, summarise(verdict, diagnosis.graph)) for verdict in verdicts]


def _print(found: list[Found], as_json: bool) -> None:
    from memtrace_otel.attribution.verdict_json import contents_json, verdict_json
    from memtrace_otel.model.printable import printable_json

    found.sort(key=lambda one: one[0].failure.time_order)
    if as_json:
        for verdict, _ in found:
            click.echo(printable_json(verdict_json(verdict) | contents_json(verdict)))
    elif found:
        from memtrace_otel.report.console import verdict_table

        Console().print(verdict_table([summary for _, summary in found]))


@click.command(epilog=examples("memtrace-otel answers", "memtrace-otel answers --db run.db --json"))
@database_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object per answer on standard output.")
@clear_errors
def answers(database: Path, as_json: bool) -> None:
    """List the recorded answers with their trace ids, questions and judgements."""
    from memtrace_otel.model.printable import one_line, printable_json
    from memtrace_otel.pipeline.answers import recorded_answers
    from memtrace_otel.sources import SqliteStore

    with SqliteStore.open(database, create=False) as store:
        found = [asdict(answer) for answer in recorded_answers(store)]
    if not found:
        fail(f"no answer in {database}", NOTHING_FOUND)
    if as_json:
        for row in found:
            click.echo(printable_json(row))
        return
    from rich.table import Column, Table

    from memtrace_otel.cli.output import print_table

    table = Table(
        Column("trace", no_wrap=True, min_width=32), "question", "answer", "judgement", box=None, pad_edge=False
    )
    for row in found:
        judgement = " ".join(filter(None, (row["judged_by"], row["label"]))) or "none"
        texts = (row["question"] or "not captured", row["answer"] or "not captured", judgement)
        table.add_row(row["trace_id"], *(one_line(text, _SHOWN_TEXT) for text in texts))
    print_table(table)


@click.command(epilog=examples("memtrace-otel report", "memtrace-otel report --db run.db -o run.html"))
@click.argument("trace_ids", nargs=-1, metavar="[TRACE_ID]...", callback=check_trace_ids)
@database_option
@click.option(
    "-o",
    "--output",
    type=click.Path(dir_okay=False, path_type=Path),
    callback=no_database,
    default=Path("report.html"),
    show_default=True,
    help="One self-contained HTML file.",
)
@click.option("--title", default="Memory failures", show_default=True, help="Heading of the report.")
@clear_errors
def report(trace_ids: tuple[str, ...], database: Path, output: Path, title: str) -> None:
    """Write an HTML report on the failing answers (no TRACE_ID: on all)."""
    from memtrace_otel.pipeline.diagnose import diagnose
    from memtrace_otel.repair.plan import Pointed, make_plan
    from memtrace_otel.report import render_report, write_private
    from memtrace_otel.sources import SqliteStore

    pointed: list[Pointed] = []

    def found() -> Iterator[tuple[Verdict, EvolutionGraph]]:
        for diagnosis in diagnose(store, store, trace_ids, progress=progress):
            for verdict in diagnosis.verdicts:
                pointed.append(Pointed.of(verdict, diagnosis.graph))
                yield verdict, diagnosis.graph

    with SqliteStore.open(database, create=False) as store, progress_bar("attribute") as progress:
        page = render_report(found(), title=title, source=str(database), plan=lambda: make_plan(pointed))
    write_private(output, page)
    click.echo(f"{output}: {len(pointed)} failing answer{'s' * (len(pointed) != 1)}")
    if not pointed:
        sys.exit(NOTHING_FOUND)
