"""Work before a child of `multiprocessing` ends: a forked one leaves by os._exit, so that `atexit` is never asked."""

from __future__ import annotations

import sys
from collections.abc import Callable

from memtrace_otel.capture.fork import after_fork
from memtrace_otel.capture.guard import guard


class _Registered:
    """What `multiprocessing` holds weakly for us; whether it does is inherited by forks, as its registry is."""

    done = False


_registered = _Registered()
_callbacks: list[tuple[Callable[[], object], int]] = []


def before_child_exits(callback: Callable[[], object], *, priority: int) -> None:
    """Call `callback` at the end of every child of `multiprocessing`, whatever started it, from now on.

    Callbacks with a negative priority run after those of the application that have none below 0 and after the child's
    own children ended; the lowest runs last. Threads of the child may outlive it. The main process is left to `atexit`.
    """
    _callbacks.append((callback, priority))
    renew()


def renew() -> None:
    """Tell `multiprocessing`, where it is in use by now. Cheap; for places that run in every process."""
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
        renew()
