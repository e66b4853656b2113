"""Output of commands: progress bars on standard error, tables on standard output."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

_UNBOUNDED = 1_000_000_000


@contextmanager
def progress_bar(title: str) -> Generator[Callable[[int, int], None]]:
    """Show a bar on standard error while standard error is a terminal; yield `update(done, total)`."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def print_table(*tables: RenderableType) -> None:
    """Print the first table that fits the terminal, else the last one, squeezed.

    In files and pipes every table fits, unless COLUMNS gives a width.
    """
    console = Console(highlight=False, markup=False, emoji=False)  # cells hold texts of traces
    endless = console.options.update(max_width=_UNBOUNDED)
    widths = [Measurement.get(console, endless, table).maximum for table in tables]
    if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        console.width = widths[0]
    fitting = (table for table, width in zip(tables, widths, strict=True) if width <= console.width)
    console.print(next(fitting, tables[-1]))
