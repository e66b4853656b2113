"""A finding of the doctor: check, state, sentence and the command that helps; printed as lines or as JSON."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console


class State(StrEnum):
    """`problem`: nothing, or the wrong thing, is recorded. `warning`: less is recorded than could be."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


_STYLES = {State.OK: "green", State.WARNING: "yellow", State.PROBLEM: "bold red"}
_INDENT = max(map(len, State)) + 2


@dataclass(frozen=True, slots=True)
class Finding:
    """The result of one check. `remedy` is a command to type; empty when the state is `ok`."""

    check: str
    state: State
    found: str
    remedy: str = ""

    def as_json(self) -> dict[str, str]:
        """Return the finding as plain values."""
        return {name: str(value) for name, value in asdict(self).items()}


def ok(check: str, found: str) -> Finding:
    """Return a finding that needs no action."""
    return Finding(check, State.OK, found)


def warning(check: str, found: str, remedy: str) -> Finding:
    """Return a finding on information that is lost without need."""
    return Finding(check, State.WARNING, found, remedy)


def problem(check: str, found: str, remedy: str) -> Finding:
    """Return a finding that explains why nothing is recorded, or why the recorded data cannot be trusted."""
    return Finding(check, State.PROBLEM, found, remedy)


def show_findings(findings: Sequence[Finding], console: Console) -> None:
    """Print each finding with its remedy; the last lines name the remedy to type first."""
    from rich.table import Table
    from rich.text import Text

    def show_command(command: str) -> None:
        # One line whatever the width of the terminal, so that a person can copy the command.
        console.print(Text(" " * _INDENT + command, "cyan"), soft_wrap=True)

    for finding in findings:
        row = Table.grid()
        row.add_column(min_width=_INDENT, no_wrap=True)
        row.add_column(overflow="fold")
        row.add_row(Text(finding.state, _STYLES[finding.state]), f"{finding.check}: {finding.found}")
        console.print(row, highlight=False, markup=False)
        if finding.remedy:
            show_command(finding.remedy)
    counts = Counter(finding.state for finding in findings)
    bad = [(counts[state], state) for state in (State.PROBLEM, State.WARNING) if counts[state]]
    summary = ", ".join(f"{count} {state}{'s' * (count != 1)}" for count, state in bad)
    first = next((finding.remedy for finding in findings if finding.state == State.PROBLEM), "")
    console.print(f"\n{summary}; type first:" if first else f"\nNothing is wrong{f' ({summary})' if summary else ''}.")
    if first:
        show_command(first)
