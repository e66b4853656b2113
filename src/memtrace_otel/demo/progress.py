"""Show the steps of a demo run: a bar on a terminal, one plain line per step elsewhere."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bar

from memtrace_otel.demo.run import Progress


@contextmanager
def shown(console: Console) -> Generator[Progress]:
    """Yield a progress callback that shows each step on `console`."""
    if not console.is_terminal:
        yield lambda step, number, total: console.print(f"[{number}/{total}] {step}", markup=False, highlight=False)
        return
    columns = (BarColumn(), MofNCompleteColumn(), TimeElapsedColumn(), TextColumn("{task.description}"))
    with Bar(*columns, console=console) as bar:
        task = bar.add_task("")
        yield lambda step, number, total: bar.update(task, description=step, completed=number - 1, total=total)
        bar.update(task, description="done", completed=bar.tasks[0].total)
