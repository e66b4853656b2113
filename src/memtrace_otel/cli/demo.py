"""`demo`: a story with planted faults."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console

from memtrace_otel.cli.errors import NOTHING_FOUND, clear_errors, fail
from memtrace_otel.cli.options import examples, page_option

if TYPE_CHECKING:
    from memtrace_otel.pages import Page


@click.command(
    epilog=examples(
        "memtrace-otel demo",
        "memtrace-otel demo --otlp-endpoint http://localhost:4317",
        "memtrace-otel demo --otlp-endpoint http://localhost:4318 --ui tempo=http://localhost:3000",
    )
)
@click.option(
    "--dir",
    "directory",
    type=click.Path(file_okay=False, path_type=Path),
    default=Path("build/demo"),
    show_default=True,
    help="Folder of the run, its database and its report; an earlier demo there is replaced.",
)
@click.option(
    "--otlp-endpoint",
    "endpoint",
    metavar="URL",
    help="Also send traces and verdicts to this OTLP receiver: HTTP on port 4318 or with a path, else gRPC. "
    "Headers: OTEL_EXPORTER_OTLP_HEADERS.",
)
@page_option
@clear_errors
def demo(directory: Path, endpoint: str | None, page: Page | None) -> None:
    """Run a story with planted faults on a real Mem0, and name the operation that lost each fact.

    Needs no account, no key and no container: the model is a scripted server on loopback. Needs
    `pip install 'memtrace-otel[demo]'`. With an OTLP receiver, the command prints pages of the backend to open.
    """
    from memtrace_otel.annotate.send import send
    from memtrace_otel.annotate.target import read_target
    from memtrace_otel.demo import DemoError
    from memtrace_otel.demo.show import show_demo
    from memtrace_otel.launch import sending_environment

    environ = sending_environment(os.environ, endpoint) if endpoint else os.environ
    if endpoint and (target := read_target("traces", environ=environ)):
        send(target, b"")  # an empty request: an error before the story, not after
    try:
        named = show_demo(directory, Console(), environ=environ, page=page)
    except DemoError as error:
        fail(str(error))
    if not named:
        sys.exit(NOTHING_FOUND)  # the missing verdicts were printed
