"""`demo`: a story with planted faults."""

from __future__ import annotations

import sys
from pathlib import Path

import click
from rich.console import Console

from memtrace_otel.cli.errors import NOTHING_FOUND, clear_errors, fail
from memtrace_otel.cli.options import examples


@click.command(epilog=examples("memtrace-otel demo", "memtrace-otel demo --dir /tmp/demo"))
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
