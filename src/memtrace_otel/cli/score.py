"""`score`: how often attribution agrees with the annotations of a benchmark."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from memtrace_otel.cli.errors import NOTHING_FOUND, clear_errors, fail
from memtrace_otel.cli.options import database_option, examples
from memtrace_otel.model.printable import printable_json

if TYPE_CHECKING:
    from memtrace_otel.graph.smartcomment import Label

_MOST_FILES = 3
"""Most files in a message."""


@click.command(
    epilog=examples(
        "memtrace-otel import mem0/*.json --db mem0.db && memtrace-otel score mem0/*.json --db mem0.db",
        "memtrace-otel score mem0/*.json --db mem0.db --json",
    )
)
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@database_option
@click.option("--json", "as_json", is_flag=True, help="JSON on standard output, with the result of every case.")
@clear_errors
def score(files: tuple[Path, ...], database: Path, as_json: bool) -> None:
    """Compare verdicts with the annotations in MemTraceBench FILES that were imported into the database.

    ETA is the share of the annotated memory failures with the right type, OIA the share with the right operation.
    Attribution never reads the annotations. A case without a verdict counts as wrong; standard error names the number
    of these cases.
    """
    from memtrace_otel.graph.smartcomment import score
    from memtrace_otel.pipeline.diagnose import UnknownTraceError, diagnose
    from memtrace_otel.sources import SqliteStore

    annotated = [(path, label) for path in files for label in _labels(path)]
    labels = list(dict.fromkeys(label for _, label in annotated))  # a case may be in several files
    if not labels:
        fail("no memory failure is annotated in these files", NOTHING_FOUND)
    with SqliteStore.open(database, create=False) as store:
        traces = sorted({label.trace_id for label in labels})
        try:
            verdicts = [verdict for diagnosis in diagnose(store, store, traces) for verdict in diagnosis.verdicts]
        except UnknownTraceError:
            missing = list(dict.fromkeys(path for path, label in annotated if not store.trace(label.trace_id)))
            named = " ".join(map(str, missing[:_MOST_FILES]))
            more = f" and {len(missing) - _MOST_FILES} more" if len(missing) > _MOST_FILES else ""
            are = "is" if len(missing) == 1 else "are"
            fail(f"{named}{more} {are} not in {database}: `memtrace-otel import FILES --db {database}` first")
    result = score(labels, verdicts)
    found = {verdict.failure.trace_id: verdict for verdict in verdicts}
    if silent := sum(label.trace_id not in found for label in labels):
        reason = "without a verdict: no evaluation calls the answer a failure. They count as wrong"
        click.secho(f"memtrace-otel: {silent} of {result.cases} cases {reason}", fg="yellow", err=True)
    if not as_json:
        click.echo(f"{result.cases} cases: ETA {result.eta:.2%}, OIA {result.oia:.2%}")
        return
    cases = [
        {
            "trace_id": label.trace_id,
            "final_error_type": str(label.failure_type),
            "final_operation": label.operation,
            "error_type": str(verdict.failure_type) if verdict else None,
            "operation": f"{verdict.trace_id}-{verdict.span_id}" if verdict and verdict.span_id else None,
        }
        for label in labels
        for verdict in (found.get(label.trace_id),)
    ]
    document = {
        "total_cases": result.cases,
        "error_type_prediction_accuracy": result.eta,
        "operation_identifier_prediction_accuracy": result.oia,
        "results": cases,
    }
    click.echo(printable_json(document))


def _labels(path: Path) -> Iterator[Label]:
    from memtrace_otel.graph.smartcomment import read_labels
    from memtrace_otel.otlp.files import GraphDocument, InputError, read_file

    for item in read_file(path):
        if isinstance(item, GraphDocument):
            try:
                yield from read_labels(item.graph)
            except ValueError as error:
                raise InputError(path, item.line, str(error)) from None
