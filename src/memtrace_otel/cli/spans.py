"""`import`: spans from files into the database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import click

from memtrace_otel.cli.errors import clear_errors
from memtrace_otel.cli.options import database_option, examples
from memtrace_otel.cli.output import progress_bar

_UNREADABLE = "spans that cannot be read"


@click.command(
    "import", epilog=examples("memtrace-otel import spans.jsonl --db run.db", "memtrace-otel import *.json.gz")
)
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@database_option
@clear_errors
def import_files(files: tuple[Path, ...], database: Path) -> None:
    """Read spans from FILES into the database, all or nothing.

    Accepted, each also gzipped: OTLP/JSON (one request per line or per file), OTLP protobuf, smartcomment and
    MemTraceBench graphs. Of OTLP logs, evaluations (`gen_ai.evaluation.result` in the context of a span) are taken, as
    `serve` takes them; other log records and, in JSON, metrics are skipped, and counted on standard error. Of another
    database, not gzipped, the spans and what waits in it are taken, as far as a damaged one can be read.
    """
    from memtrace_otel.sources.importing import import_requests

    skipped: Counter[str] = Counter()
    with progress_bar("import") as progress:
        spans = import_requests(database, _bodies(files, progress, skipped))
    if skipped:
        told = "; ".join(f"{what}: {count}" for what, count in skipped.items())
        click.echo(f"memtrace-otel: skipped {told}", err=True)
    click.echo(f"{spans} new spans in {database}")


def _bodies(files: tuple[Path, ...], progress: Callable[[int, int], None], skipped: Counter[str]) -> Iterator[bytes]:
    """Yield trace requests; count what else there is in `skipped`."""
    from memtrace_otel.graph.smartcomment import to_spans
    from memtrace_otel.otlp import encode_request
    from memtrace_otel.otlp.files import GraphDocument, InputError, Skipped, read_file
    from memtrace_otel.sources.salvage import is_database, read_requests

    for number, path in enumerate(files):
        progress(number, len(files))
        if is_database(path):
            for body in read_requests(path):
                if body is None:
                    skipped[_UNREADABLE] += 1
                else:
                    yield body
            continue
        for item in read_file(path):
            if isinstance(item, GraphDocument):
                try:
                    yield encode_request(to_spans(item.graph))
                except ValueError as error:
                    raise InputError(path, item.line, str(error)) from None
            elif isinstance(item, Skipped):
                skipped[item.what] += item.count
            else:
                yield item.body
