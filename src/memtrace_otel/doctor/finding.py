"""What one check found."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum


class State(StrEnum):
    """`problem`: nothing, or not what was asked for, is recorded. `warning`: less than could be."""

    OK = "ok"
    WARNING = "warning"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True)
class Finding:
    """One line: what was looked at, how it is, what was found and, unless it is fine, what to type."""

    check: str
    state: State
    found: str
    remedy: str = ""

    def as_json(self) -> dict[str, str]:
        """The finding as plain values."""
        return {name: str(value) for name, value in asdict(self).items()}


def ok(check: str, found: str) -> Finding:
    """Nothing to do."""
    return Finding(check, State.OK, found)


def warning(check: str, found: str, remedy: str) -> Finding:
    """Something is lost that need not be."""
    return Finding(check, State.WARNING, found, remedy)


def problem(check: str, found: str, remedy: str) -> Finding:
    """A reason why nothing appears, or why what appears cannot be trusted."""
    return Finding(check, State.PROBLEM, found, remedy)
