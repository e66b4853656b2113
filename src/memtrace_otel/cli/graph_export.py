"""Graphs in the forms of other tools, on standard output or in a file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import click

from memtrace_otel.cli.errors import fail

if TYPE_CHECKING:
    from memtrace_otel.graph import EvolutionGraph

P = ParamSpec("P")
R = TypeVar("R")

_FORMATS = ("json", "dot", "graphml", "smartcomment", "parquet")


def export_options(command: Callable[P, R]) -> Callable[P, R]:
    """`--format`, `--output`."""
    form = click.option(
        "--format", "form", type=click.Choice(_FORMATS), default="json", show_default=True, help="Form of the export."
    )
    output = click.option(
        "-o", "--output", type=click.Path(path_type=Path), help="File (parquet: folder) to write, else stdout."
    )
    return form(output(command))


def export(evolution: EvolutionGraph, form: str, output: Path | None) -> None:
    """Write the graph. Exits with a message when it cannot be."""
    from memtrace_otel.graph.export import render

    if form == "parquet":
        from memtrace_otel.graph.parquet import write_parquet

        if output is None:
            raise click.UsageError("parquet is written into a folder: give --output")
        try:
            write_parquet(evolution, output)
        except ImportError as error:
            fail(str(error))
    elif output:
        from memtrace_otel.report import write_private

        write_private(output, render(evolution, form))
    else:
        click.echo(render(evolution, form))
