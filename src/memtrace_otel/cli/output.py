"""Output of commands: progress bars on standard error, tables on standard output."""

from __future__ import annotations

import os
import sys
from collections import Counter
from collections.abc import Callable, Collection, Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
from rich.console import Console, RenderableType
from rich.measure import Measurement
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from memtrace_otel.model.printable import one_line

if TYPE_CHECKING:
    from memtrace_otel.attribution.endpoint import Endpoint

_UNBOUNDED = 1_000_000_000


@contextmanager
def progress_bar(title: str) -> Generator[Callable[[int, int], None]]:
    """Show a bar on standard error while standard error is a terminal; yield `update(done, total)`."""
    console = Console(stderr=True)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task(title, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def tell_model(endpoint: Endpoint, verdicts: Collection[tuple[str, str]]) -> None:
    """Say on standard error who decided the cases, what the calls cost, and why the model did not help.

    `verdicts`: `method` and `model_problem` of each.
    """
    from memtrace_otel.attribution.agent import ABSTAINED
    from memtrace_otel.attribution.apply_rules import METHOD

    by_method = Counter(method for method, problem in verdicts if not problem)
    problems = Counter(problem for _, problem in verdicts if problem)
    rules, total = by_method.pop(METHOD, 0), len(verdicts)
    abstained = problems.pop(ABSTAINED, 0)
    cost = f", cost {endpoint.cost:.4g}" if endpoint.cost is not None else ""
    told = f"rules alone decided {rules} of {total}, the model {by_method.total()}"
    told += f"; the model abstained in {abstained}, failed in {problems.total()}"
    click.echo(f"{told}; {endpoint.calls} calls, {endpoint.tokens} tokens{cost}", err=True)
    for problem, count in problems.most_common():
        click.echo(f"the model did not help in {count}: {one_line(problem)}", err=True)


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
