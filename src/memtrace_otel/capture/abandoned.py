"""What the program threw away half-way (streams, generators, coroutines) is reported later.

Not where it dies: a garbage collector may run anywhere, inside our own locks too, and inside `ContextVar.set`, where
setting another one crashes Python up to 3.11.
"""

from __future__ import annotations

import atexit
import gc
from collections import deque
from collections.abc import Callable
from contextvars import Context
from functools import partial
from operator import methodcaller
from threading import RLock

from memtrace_otel.capture.child_exit import before_child_exits
from memtrace_otel.capture.fork import after_fork
from memtrace_otel.capture.guard import guard, note_drop

_MOST = 1024
_BEFORE_THE_PROCESSOR = -800
_reports: deque[Callable[[], None]] = deque()


class _Collector:
    """Which thread the garbage collector runs in: `start` and `stop`, when they are looked at, take and give back a
    lock that knows its owner. No Python code runs for it, in which a signal handler of the program could raise: the
    collector would swallow that."""

    start = property(methodcaller("acquire", False))
    stop = property(methodcaller("release"))

    def __init__(self) -> None:
        lock = RLock()
        self.acquire, self.release = lock.acquire, lock.release
        self.runs_here: Callable[[], bool] = lock._is_owned  # type: ignore[attr-defined]  # as threading.Condition asks


_collector = _Collector()
after_fork(_collector.__init__)  # it may have been running in a thread that the child lacks
gc.callbacks.append(partial(getattr, _collector))  # called with "start" or "stop", and what else it says


def collecting() -> bool:
    """Whether the garbage collector runs in this thread, so that whoever asks is being finalized: no context variable
    may be set, no lock taken. What is to be told has to be abandoned."""
    return _collector.runs_here()


def abandon(report: Callable[[], None]) -> None:
    """Have what was thrown away reported later; past 1024 reports they are only counted."""
    if len(_reports) < _MOST:
        _reports.append(report)
    else:
        note_drop("abandoned_streams")


def settle_abandoned() -> None:
    """Report it, in a context of its own. Called wherever an operation starts, and at exit."""
    if not _settles_at_exit:
        _settle_at_exit()
    while _reports and not collecting():  # else what is being finalized would abandon its reports again, for ever
        try:
            report = _reports.popleft()
        except IndexError:  # another thread was faster
            return
        with guard("abandoned"):
            Context().run(report)


_settles_at_exit = False


def _settle_at_exit() -> None:
    """With the first call, not at import: exit functions run in reverse, and the provider's has to come after ours."""
    global _settles_at_exit
    _settles_at_exit = True
    atexit.register(settle_abandoned)
    before_child_exits(settle_abandoned, priority=_BEFORE_THE_PROCESSOR)
