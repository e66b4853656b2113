"""Tables on standard output: on a terminal as wide as that, elsewhere as wide as what they say."""

from __future__ import annotations

import os
import sys

from rich.console import Console, RenderableType
from rich.measure import Measurement

_UNBOUNDED = 1_000_000_000


def print_table(*tables: RenderableType) -> None:
    """Print the first of these tables that fits, else the last, squeezed to the width of the terminal.

    In files and pipes all fit, unless COLUMNS says how wide they are.
    """
    console = Console(highlight=False)
    endless = console.options.update(max_width=_UNBOUNDED)
    widths = [Measurement.get(console, endless, table).maximum for table in tables]
    if not sys.stdout.isatty() and "COLUMNS" not in os.environ:
        console.width = widths[0]
    fitting = (table for table, width in zip(tables, widths, strict=True) if width <= console.width)
    console.print(next(fitting, tables[-1]))
