"""The `memtrace-otel` command: parse, call, print. Exit status 0 done, 1 not found, 2 bad arguments or input."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn, ParamSpec, TypeVar

import click
from click.shell_completion import get_completion_class
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from memtrace_otel import settings
from memtrace_otel.version import __version__

P = ParamSpec("P")
R = TypeVar("R")

NOTHING_FOUND, BAD_INPUT = 1, 2
_GRAPH_FORMATS = ("json", "dot", "graphml", "smartcomment")
_TRACE_ID_DIGITS = 32


def fail(message: str, status: int = BAD_INPUT) -> NoReturn:
    """Say what went wrong on standard error and leave."""
    click.secho(f"memtrace-otel: {message}", fg="red" if status == BAD_INPUT else None, err=True)
    sys.exit(status)


def user_errors() -> tuple[type[Exception], ...]:
    """Return the errors that a user can cause; any other one is a fault of ours and shows its traceback."""
    from memtrace_otel.annotate import SendError, TargetError
    from memtrace_otel.diagnosis import UnknownTraceError
    from memtrace_otel.otlp.files import InputError
    from memtrace_otel.store import StoreError

    return InputError, StoreError, SendError, TargetError, UnknownTraceError


def clear_errors(command: Callable[P, R]) -> Callable[P, R]:
    """Turn the errors that a user can cause into one line and exit status 2."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        try:
            return command(*args, **kwargs)
        except OSError as error:
            fail(f"{error.filename or 'input or output'}: {error.strerror or error}")
        except user_errors() as error:
            fail(str(error))

    return run


def database_option(command: Callable[P, R]) -> Callable[P, R]:
    """`--db FILE`."""
    return click.option(
        "--db",
        "database",
        type=click.Path(dir_okay=False, path_type=Path),
        envvar=settings.DB_PATH.env,
        default=settings.DB_PATH.default,
        show_default=True,
        show_envvar=True,
        help="Database written by OTEL_TRACES_EXPORTER=memtrace or by `import`.",
    )(command)


def check_trace_ids(context: click.Context, parameter: click.Parameter, value: Any) -> Any:
    """Refuse what cannot be a trace id; upper case is accepted."""
    ids = (value,) if isinstance(value, str) else value
    for id in ids:
        if len(id) != _TRACE_ID_DIGITS or not set(id.lower()) <= set("0123456789abcdef"):
            raise click.BadParameter(f"{id!r} is no trace id: 32 hex digits are needed")
    return value.lower() if isinstance(value, str) else tuple(id.lower() for id in ids)


@contextmanager
def progress_bar(title: str) -> Generator[Callable[[int, int], None]]:
    """A bar on standard error while it is a terminal, nothing elsewhere."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def examples(*lines: str) -> str:
    """The examples at the foot of a command's help."""
    return "\b\nExamples:\n" + "\n".join(f"  {line}" for line in lines)


@click.group(
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
    epilog=examples(
        "memtrace-otel demo",
        "OTEL_TRACES_EXPORTER=memtrace opentelemetry-instrument python app.py",
        "memtrace-otel attribute --all",
        "memtrace-otel report -o report.html",
    ),
)
@click.version_option(__version__, prog_name="memtrace-otel")
def main() -> None:
    """Find the memory operation that made an agent's answer fail."""


@main.command(epilog=examples("memtrace-otel demo", "memtrace-otel demo --dir /tmp/demo"))
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("build/demo"),
    show_default=True,
    help="Where the run, its database and its report go; an earlier demo there is replaced.",
)
@clear_errors
def demo(directory: Path) -> None:
    """Run a story with planted faults on a real Mem0 and name what lost each fact.

    Needs no account, no key and no container: the model is a scripted server on loopback. Installed with
    `pip install 'memtrace-otel[demo]'`.
    """
    from memtrace_otel.demo import DemoError
    from memtrace_otel.demo.show import show_demo

    try:
        named = show_demo(directory, Console())
    except DemoError as error:
        fail(str(error))
    if not named:
        sys.exit(NOTHING_FOUND)  # what is missing was printed


@main.command(
    "import", epilog=examples("memtrace-otel import spans.jsonl --db run.db", "memtrace-otel import *.json.gz")
)
@click.argument("files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@database_option
@clear_errors
def import_files(files: tuple[Path, ...], database: Path) -> None:
    """Read spans from FILES into the database, all or nothing.

    Accepted, each also gzipped: OTLP/JSON (one request per line or per file), OTLP protobuf, smartcomment and
    MemTraceBench graphs.
    """
    from memtrace_otel.store.importing import import_requests

    with progress_bar("import") as progress:
        spans = import_requests(database, _bodies(files, progress))
    click.echo(f"{spans} new spans in {database}")


def _bodies(files: tuple[Path, ...], progress: Callable[[int, int], None]) -> Iterator[bytes]:
    from memtrace_otel.graph.smartcomment import to_spans
    from memtrace_otel.otlp import encode_request
    from memtrace_otel.otlp.files import GraphDocument, InputError, read_file

    for number, path in enumerate(files):
        progress(number, len(files))
        for item in read_file(path):
            if isinstance(item, GraphDocument):
                try:
                    yield encode_request(to_spans(item.graph))
                except ValueError as error:
                    raise InputError(path, item.line, str(error)) from None
            else:
                yield item.body


@main.command(
    epilog=examples(
        "memtrace-otel attribute --all",
        "memtrace-otel attribute 4bf92f3577b34da6a3ce929d0e0e4736 --json",
        "OTEL_EXPORTER_OTLP_ENDPOINT=http://localhost:4317 memtrace-otel attribute --all",
    )
)
@click.argument("trace_ids", nargs=-1, metavar="[TRACE_ID]...", callback=check_trace_ids)
@click.option("--all", "everything", is_flag=True, help="Every failing trace of the database.")
@database_option
@click.option("--json", "as_json", is_flag=True, help="One JSON object per failing trace on standard output.")
@click.option("--annotate/--no-annotate", default=True, show_default=True, help="Write the verdicts as spans.")
@clear_errors
def attribute(trace_ids: tuple[str, ...], everything: bool, database: Path, as_json: bool, annotate: bool) -> None:
    """Name the decisive operation and the failure type of failed answers.

    Verdicts are written to the database as marker spans and, when OTEL_EXPORTER_OTLP_ENDPOINT is set, sent to that
    backend, each once.
    """
    from memtrace_otel.annotate import deliver
    from memtrace_otel.attribution import verdict_json
    from memtrace_otel.diagnosis import diagnose, record
    from memtrace_otel.store import SqliteStore

    if everything == bool(trace_ids):
        raise click.UsageError("give either trace ids or --all")
    started = time.time_ns()
    with SqliteStore.open(database, create=False) as store:
        with progress_bar("attribute") as progress:
            diagnosis = diagnose(store, trace_ids, progress=progress)
        annotations = record(store, diagnosis, started=started) if annotate else []
        verdicts = [annotation.verdict for annotation in annotations] or diagnosis.verdicts
        if as_json:
            for verdict in verdicts:
                click.echo(json.dumps(verdict_json(verdict), ensure_ascii=False))
        elif verdicts:
            from memtrace_otel.report.console import verdict_table

            Console().print(verdict_table(verdicts, diagnosis.graph))
        sent = deliver(annotations, store)
    if sent.traces is not None:
        click.echo(f"sent {sent.spans} spans and {sent.events} events to {sent.traces}", err=True)
    if not verdicts:
        fail(f"no failing answer in {database if everything else ', '.join(trace_ids)}", NOTHING_FOUND)


@main.command(
    epilog=examples(
        "memtrace-otel graph 4bf92f3577b34da6a3ce929d0e0e4736 --format dot | dot -Tsvg > fact.svg",
        "memtrace-otel graph 4bf92f3577b34da6a3ce929d0e0e4736 --format graphml -o trace.graphml",
    )
)
@click.argument("trace_id", callback=check_trace_ids)
@database_option
@click.option("--format", "form", type=click.Choice(_GRAPH_FORMATS), default="json", show_default=True)
@click.option("-o", "--output", type=click.Path(dir_okay=False, path_type=Path), help="File to write, else stdout.")
@clear_errors
def graph(trace_id: str, database: Path, form: str, output: Path | None) -> None:
    """Print how what a trace read and wrote has evolved, across traces and processes."""
    from memtrace_otel.diagnosis import UnknownTraceError
    from memtrace_otel.graph import load_graph
    from memtrace_otel.graph.export import render
    from memtrace_otel.store import SqliteStore

    with SqliteStore.open(database, create=False) as store:
        if not store.trace(trace_id):
            raise UnknownTraceError(trace_id)
        text = render(load_graph(store, trace_id), form)
    if output:
        output.write_text(text, "utf-8")
    else:
        click.echo(text)


@main.command(epilog=examples("memtrace-otel report", "memtrace-otel report --db run.db -o run.html"))
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
@click.option("--title", default="Memory failures", show_default=True)
@clear_errors
def report(trace_ids: tuple[str, ...], database: Path, output: Path, title: str) -> None:
    """Write an HTML report on the failing answers (no TRACE_ID: on all)."""
    from memtrace_otel.diagnosis import diagnose
    from memtrace_otel.report import render_report
    from memtrace_otel.store import SqliteStore

    with SqliteStore.open(database, create=False) as store:
        with progress_bar("attribute") as progress:
            diagnosis = diagnose(store, trace_ids, progress=progress)
        page = render_report(diagnosis.verdicts, diagnosis.graph, title=title, source=str(database))
    output.write_text(page, "utf-8")
    click.echo(f"{output}: {len(diagnosis.verdicts)} failing answers")
    if not diagnosis.verdicts:
        sys.exit(NOTHING_FOUND)


@main.command()
def version() -> None:
    """Print the version of memtrace-otel, of its wire contract and of Python."""
    from memtrace_otel.semconv import WIRE_VERSION

    click.echo(f"memtrace-otel {__version__}, wire {WIRE_VERSION}, Python {sys.version.split()[0]}")


@main.command(epilog=examples('eval "$(memtrace-otel completion bash)"', "memtrace-otel completion zsh >> ~/.zshrc"))
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def completion(shell: str) -> None:
    """Print the script that completes commands and options in a shell."""
    kind = get_completion_class(shell)
    assert kind is not None  # click knows all three
    click.echo(kind(main, {}, "memtrace-otel", "_MEMTRACE_OTEL_COMPLETE").source())


if __name__ == "__main__":
    main()
