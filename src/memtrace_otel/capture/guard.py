"""Observing never harms: our own errors end here, are counted, and are logged once per place."""

from __future__ import annotations

import logging
import signal
import threading
from collections import Counter
from collections.abc import Callable
from functools import partial, wraps
from traceback import walk_tb
from types import CodeType, FunctionType, MethodType, TracebackType
from typing import ParamSpec, TypeVar, cast

P = ParamSpec("P")
R = TypeVar("R")
D = TypeVar("D")
K = TypeVar("K")

_logger = logging.getLogger("memtrace_otel.capture")


class Tally(Counter[K]):
    """A `Counter` that threads lose no count of: `+= 1` for a new key runs no Python code, so none comes in between."""

    __missing__ = staticmethod(().count)  # 0  # pyright: ignore[reportAssignmentType]


drops: Tally[str] = Tally()
"""What capture lost in this process, by reason. Only ever grows."""


drops_by_system: Tally[tuple[str, str]] = Tally()
"""Those of them that were of one memory system: (reason, system)."""
_MAX_SERIES = 256  # programs make up names of systems


def note_drop(reason: str, amount: int = 1, system: str = "") -> None:
    """Count something that was not recorded, of an operation of this system where that is known."""
    drops[reason] += amount
    if system and (len(drops_by_system) < _MAX_SERIES or (reason, system) in drops_by_system):
        drops_by_system[reason, system] += amount


def let_through(error: BaseException) -> None:
    """Raise it again when a signal handler of the program raised it (a time limit, say) while our code ran."""
    if threading.current_thread() is not threading.main_thread():  # no handler runs there
        return
    handlers = {_code(signal.getsignal(number)) for number in signal.valid_signals()}
    if any(frame.f_code in handlers for frame, _ in walk_tb(error.__traceback__)):
        raise error


def _code(handler: object) -> CodeType | None:
    """What a frame of a signal handler runs; None for one that is not written in Python."""
    while isinstance(handler, partial):
        handler = cast("partial[object]", handler).func
    if isinstance(handler, MethodType):
        handler = handler.__func__
    if not isinstance(handler, FunctionType):
        handler = getattr(type(handler), "__call__", None)  # noqa: B004  # of an object that can be called
    return handler.__code__ if isinstance(handler, FunctionType) else None


def note_error(where: str, error: Exception, system: str = "") -> None:
    """Count an error of ours and log it the first time (type only: the message may hold content)."""
    let_through(error)
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
