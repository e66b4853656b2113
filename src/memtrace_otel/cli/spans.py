"""The command `import`: read spans from files into the database."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import IO

import click

from memtrace_otel.cli.errors import clear_errors
from memtrace_otel.cli.options import database_option, examples
from memtrace_otel.cli.output import progress_bar

_LENGTH_BYTES = 8


@click.command(
    "import", epilog=examples("memtrace-otel import spans.jsonl --db run.db", "memtrace-otel import *.json.gz")
)
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@database_option
@clear_errors
def import_files(files: tuple[Path, ...], database: Path) -> None:
    """Read spans from FILES into the database, all or nothing.

    Formats, also gzipped: OTLP/JSON (one request per line or per file), OTLP protobuf, smartcomment and MemTraceBench
    graphs. Of OTLP logs, evaluations (`gen_ai.evaluation.result` in the context of a span) are read, as by `serve`.
    Other log records, and metrics in JSON, are skipped and counted on standard error.
    """
    skipped: Counter[str] = Counter()
    with progress_bar("import") as progress:
        spans = import_requests(database, _bodies(files, progress, skipped))
    if skipped:
        told = "; ".join(f"{what}: {count}" for what, count in skipped.items())
        click.echo(f"memtrace-otel: skipped {told}", err=True)
    click.echo(f"{spans} new spans in {database}")


def import_requests(path: str | Path, bodies: Iterable[bytes]) -> int:
    """Add OTLP requests to the database at `path`, all or none; return how many spans are new to the database.

    `bodies` is first read to its end, into an unnamed temporary file. If `bodies` raises, the database is not changed
    and not created. Raises SourceError, and what `bodies` raises.
    """
    from memtrace_otel.sources import SqliteStore

    if Path(path).exists():
        SqliteStore.open(path, create=False).close()  # refuse a file of another version before the long work
    with tempfile.TemporaryFile() as staged:
        for body in bodies:
            staged.write(len(body).to_bytes(_LENGTH_BYTES, "big") + body)
        with SqliteStore.open(path) as store:
            store.add_requests(_staged(staged))
            return store.decode()


def _staged(file: IO[bytes]) -> Iterator[bytes]:
    file.seek(0)
    while length := file.read(_LENGTH_BYTES):
        yield file.read(int.from_bytes(length, "big"))


def _bodies(files: tuple[Path, ...], progress: Callable[[int, int], None], skipped: Counter[str]) -> Iterator[bytes]:
    """Yield trace requests; count everything else in `skipped`."""
    from memtrace_otel.graph.smartcomment import to_spans
    from memtrace_otel.otlp import encode_request
    from memtrace_otel.otlp.files import GraphDocument, InputError, Skipped, read_file

    for number, path in enumerate(files):
        progress(number, len(files))
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
