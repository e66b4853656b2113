"""Streams that the program threw away half-way are reported later.

Not where they die: a garbage collector may run anywhere, inside our own locks too.
"""

from __future__ import annotations

import atexit
from collections import deque
from collections.abc import Callable
from functools import cache

from memtrace_otel.capture import guard
from memtrace_otel.capture.child_exit import before_child_exits
from memtrace_otel.capture.guard import note_drop

_MOST = 1024
_BEFORE_THE_PROCESSOR = -800
_reports: deque[Callable[[], None]] = deque()


def abandon(report: Callable[[], None]) -> None:
    """Have a stream that was thrown away reported later; past 1024 of them they are only counted."""
    if len(_reports) < _MOST:
        _reports.append(report)
    else:
        note_drop("abandoned_streams")


def settle_abandoned() -> None:
    """Report them. Called wherever an instrumentor of streams comes by, and at exit."""
    _settle_at_exit()
    while True:
        try:
            report = _reports.popleft()
        except IndexError:
            return
        with guard("abandoned"):
            report()


@cache
def _settle_at_exit() -> None:
    """With the first call, not at import: exit functions run in reverse, and the provider's has to come after ours."""
    atexit.register(settle_abandoned)
    before_child_exits(settle_abandoned, priority=_BEFORE_THE_PROCESSOR)
