"""Guards: errors of our own code are caught, counted, and logged once per place; counts of drops."""

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
"""Number of lost items in this process, by reason. A count never shrinks."""
_counting = threading.RLock()  # re-entrant: a signal handler may come in between


def note_drop(reason: str, amount: int = 1) -> None:
    """Count items that were not recorded."""
    with _counting:
        drops[reason] += amount


@after_fork
def _after_fork() -> None:
    global _counting
    _counting = threading.RLock()
    drops.clear()


def note_error(where: str, error: Exception) -> None:
    """Count an error of ours and log it the first time (type only: the message may hold content)."""
    note_drop(f"error:{where}")
    if drops[f"error:{where}"] == 1:
        _logger.warning(
            "memtrace capture failed in %s (%s); the application is not affected", where, type(error).__name__
        )


def note_misuse(what: str, explanation: str) -> None:
    """Count a wrong call of our API and log the first one of its kind."""
    note_drop(f"misuse:{what}")
    if drops[f"misuse:{what}"] == 1:
        _logger.warning("memtrace: %s", explanation)


class guard:
    """Context manager that catches and counts every Exception of our own code in its body."""

    __slots__ = ("where",)

    def __init__(self, where: str) -> None:
        self.where = where

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, tb: TracebackType | None) -> bool:
        if isinstance(error, Exception):
            note_error(self.where, error)
            return True
        return False


def guarded(where: str, default: D) -> Callable[[Callable[P, R]], Callable[P, R | D]]:
    """Decorate a function of ours: it returns `default` instead of raising."""

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
