"""Guards: errors of our own code are swallowed, counted, and logged once per place; counts of drops."""

from __future__ import annotations

import logging
import threading
from collections import Counter
from collections.abc import Callable
from functools import wraps
from types import TracebackType
from typing import ParamSpec, TypeVar

from memtrace_otel.capture.fork import after_fork

P = ParamSpec("P")
R = TypeVar("R")
D = TypeVar("D")

_logger = logging.getLogger("memtrace_otel.capture")

drops: Counter[str] = Counter()
"""Counts of what capture lost in this process, by reason. A count never shrinks."""
drops_by_system: Counter[tuple[str, str]] = Counter()
"""Counts by (reason, memory system), where the system is known."""
_MAX_SERIES = 256  # programs make up names of systems
_counting = threading.RLock()  # re-entrant: a signal handler may come in between


def note_drop(reason: str, amount: int = 1, system: str = "") -> None:
    """Count something that was not recorded, of this memory system if it is known."""
    with _counting:
        drops[reason] += amount
        if system and (len(drops_by_system) < _MAX_SERIES or (reason, system) in drops_by_system):
            drops_by_system[reason, system] += amount


@after_fork
def _after_fork() -> None:
    global _counting
    _counting = threading.RLock()
    drops.clear()
    drops_by_system.clear()


def note_error(where: str, error: Exception, system: str = "") -> None:
    """Count an error of ours and log it the first time (type only: the message may hold content)."""
    note_drop(f"error:{where}", system=system)
    if drops[f"error:{where}"] == 1:
        _logger.warning(
            "memtrace capture failed in %s (%s); the application is not affected", where, type(error).__name__
        )


def note_misuse(what: str, explanation: str, system: str = "") -> None:
    """Count a call of ours that makes no sense and log the first one of its sort."""
    note_drop(f"misuse:{what}", system=system)
    if drops[f"misuse:{what}"] == 1:
        _logger.warning("memtrace: %s", explanation)


class guard:
    """Context manager that swallows and counts every Exception raised by our own code in its body."""

    __slots__ = ("system", "where")

    def __init__(self, where: str, system: str = "") -> None:
        self.where, self.system = where, system

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> bool:
        if isinstance(error, Exception):
            note_error(self.where, error, self.system)
            return True
        return False


def guarded(where: str, default: D) -> Callable[[Callable[P, R]], Callable[P, R | D]]:
    """Decorate a function of ours so that it returns `default` instead of raising."""

    def decorate(function: Callable[P, R]) -> Callable[P, R | D]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R | D:
            try:
                return function(*args, **kwargs)
            except Exception as error:
                note_error(where, error)
                return default

        return call

    return decorate
