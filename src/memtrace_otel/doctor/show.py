"""Findings on a terminal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.console import Console
from rich.table import Table
from rich.text import Text

from memtrace_otel.doctor.finding import Finding, State

_STYLES = {State.OK: "green", State.WARNING: "yellow", State.PROBLEM: "bold red"}
_INDENT = max(map(len, State)) + 2


def show_findings(findings: Sequence[Finding], console: Console) -> None:
    """Print each finding with what to type, and at the end what to type first."""
    for finding in findings:
        row = Table.grid()
        row.add_column(min_width=_INDENT, no_wrap=True)
        row.add_column(overflow="fold")
        row.add_row(Text(finding.state, _STYLES[finding.state]), f"{finding.check}: {finding.found}")
        console.print(row, highlight=False, markup=False)
        if finding.remedy:
            _print_command(finding.remedy, console)
    counts = Counter(finding.state for finding in findings)
    bad = [(counts[state], state) for state in (State.PROBLEM, State.WARNING) if counts[state]]
    told = ", ".join(f"{count} {state}{'s' * (count != 1)}" for count, state in bad)
    first = next((finding.remedy for finding in findings if finding.state == State.PROBLEM), "")
    console.print(f"\n{told}; type first:" if first else f"\nNothing is wrong{f' ({told})' if told else ''}.")
    if first:
        _print_command(first, console)


def _print_command(command: str, console: Console) -> None:
    """On one line however narrow the terminal is, so that it can be copied."""
    console.print(Text(" " * _INDENT + command, "cyan"), soft_wrap=True)
