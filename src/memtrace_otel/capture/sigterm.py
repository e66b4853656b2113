"""SIGTERM ends a program that does not handle it without any clean-up; what waits is saved first."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from types import FrameType

from memtrace_otel.capture.guard import guard

SECONDS = 3.0
"""From the signal to the end of the process."""

_first: list[Callable[[], object]] = []


def before_spans_are_saved(callback: Callable[[], object]) -> None:
    """Call `callback` before spans are saved, from now on, while they are being exported. It runs in a signal handler:
    the main thread may hold any lock meanwhile. What it takes is taken from the seconds for the spans."""
    _first.append(callback)


def save_before_sigterm(save: Callable[[float], None], hurry: Callable[[], None]) -> bool:
    """When SIGTERM is about to end the process, call `hurry`, then `save` with the seconds that are left; then let it
    end as it would have: by the signal.

    Only where the default action is in place and from the main thread; a handler of the application, set before or
    later, is left alone. A second SIGTERM ends the process at once. The first process of a container has no default
    action: the system spares it, so that it goes on and `hurry` is all. Returns whether the handler was set.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        if os.getpid() == 1:
            hurry()
            return
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        deadline = time.monotonic() + SECONDS
        try:
            hurry()
            for callback in _first:
                with guard("sigterm"):
                    callback()
            save(max(0.0, deadline - time.monotonic()))
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    if os.name != "posix" or threading.current_thread() is not threading.main_thread():
        return False
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return False
    signal.signal(signal.SIGTERM, handle)
    return True
