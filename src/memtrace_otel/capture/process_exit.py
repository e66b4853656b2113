"""The end of a process: what runs before a child of `multiprocessing` ends, and before SIGTERM ends the process.

A forked child of `multiprocessing` ends by `os._exit`, which runs no `atexit` function. SIGTERM ends a program that has
no handler for it without any clean-up.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from types import FrameType

from memtrace_otel.capture.fork import after_fork
from memtrace_otel.capture.guard import guard

SIGTERM_SECONDS = 3.0
"""From the signal to the end of the process."""


class _Registered:
    """An object that `multiprocessing` holds weakly; forked children inherit it with the registry."""

    done = False


_registered = _Registered()
_callbacks: list[tuple[Callable[[], object], int]] = []


def before_child_exits(callback: Callable[[], object], *, priority: int) -> None:
    """Call `callback` at the end of every child of `multiprocessing` from now on; the lowest priority runs last.

    The main process is left to `atexit`. Threads of the child may run after the callback.
    """
    _callbacks.append((callback, priority))
    register_with_multiprocessing()


def register_with_multiprocessing() -> None:
    """Register the callbacks if the program has imported `multiprocessing`. Cheap: call it in every process."""
    if "multiprocessing.util" not in sys.modules:
        return
    from multiprocessing import util

    if not _registered.done:
        _registered.done = True
        util.register_after_fork(_registered, _add_finalizers)  # a child forgets its finalizers first
    _add_finalizers(_registered)


def _add_finalizers(_: object) -> None:
    from multiprocessing import parent_process, util

    if parent_process() is not None:
        for callback, priority in _callbacks:
            util.Finalize(None, callback, exitpriority=priority)


@after_fork
def _after_fork() -> None:
    with guard("child_exit"):
        register_with_multiprocessing()


def save_before_sigterm(save: Callable[[float], None], hurry: Callable[[], None]) -> bool:
    """When SIGTERM is about to end the process, call `hurry`, then `save` with the seconds that are left; then let the
    signal end the process.

    Set only from the main thread and only over the default action: a handler of the program stays. A second SIGTERM
    ends the process at once. The first process of a container survives SIGTERM: there `hurry` is all. Returns whether
    the handler was set.
    """

    def handle(number: int, frame: FrameType | None) -> None:
        if os.getpid() == 1:
            hurry()
            return
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        deadline = time.monotonic() + SIGTERM_SECONDS
        try:
            hurry()
            save(max(0.0, deadline - time.monotonic()))
        finally:
            os.kill(os.getpid(), signal.SIGTERM)

    if os.name != "posix" or threading.current_thread() is not threading.main_thread():
        return False
    if signal.getsignal(signal.SIGTERM) is not signal.SIG_DFL:
        return False
    signal.signal(signal.SIGTERM, handle)
    return True
