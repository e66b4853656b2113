"""Reports of finalizers: a stream that the program dropped half-way is recorded later, not where it was finalized.

A garbage collector may run anywhere, also while this thread holds a lock of ours. A finalizer therefore only adds to a
queue. The next operation that starts, or the end of the process, runs the reports.
"""

from __future__ import annotations

import atexit
from collections import deque
from collections.abc import Callable
from contextvars import Context

from memtrace_otel.capture.guard import guard, note_drop
from memtrace_otel.capture.process_exit import before_child_exits

_MOST = 1024
_BEFORE_DELIVERY = -800
_at_exit = False
_reports: deque[Callable[[], None]] = deque()


def report_later(report: Callable[[], None]) -> None:
    """Queue a report, which takes no arguments; of more than 1024 the rest is only counted."""
    if len(_reports) < _MOST:
        _reports.append(report)
    else:
        note_drop("abandoned_streams")


def report_waiting() -> None:
    """Run the queued reports, each in an empty context. Called when an operation starts, and at exit."""
    global _at_exit
    if not _at_exit:  # exit functions run in reverse order: the provider, which exists by now, must end after this
        _at_exit = True
        atexit.register(report_waiting)
        before_child_exits(report_waiting, priority=_BEFORE_DELIVERY)
    while _reports:
        try:
            report = _reports.popleft()
        except IndexError:  # another thread was faster
            return
        with guard("abandoned"):
            Context().run(report)
