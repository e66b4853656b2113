"""A background process, seen from within: it works step by step, tells of it, and ends when the server has ended.

A line on standard input says that there may be something to do, its end that the server has ended. Each line on
standard output is a `Progress`.
"""

from __future__ import annotations

import logging
import os
import select
import signal
import sys
from collections.abc import Callable
from contextlib import suppress

from memtrace_otel.serve.progress import Progress
from memtrace_otel.sources import DamagedError, StoreError

_logger = logging.getLogger(__name__)
_RETRY_SECONDS = 1.0

Tell = Callable[[Progress], None]
"""Tells the server; what is empty is not told."""


def set_up(niceness: int) -> Tell:
    """Begin as a background process; return what tells the server."""
    told = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # whatever else is printed, metrics perhaps, is no progress
    for ignored in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ignored, signal.SIG_IGN)  # a whole group is told at once; the server says when to end
    os.nice(niceness)
    logging.basicConfig(format="memtrace-otel: %(message)s")

    def tell(progress: Progress) -> None:
        if progress:
            print(progress.line(), file=told, flush=True)

    return tell


def work(start: Callable[[], None], step: Callable[[], float], tell: Tell) -> None:
    """Start, then work until standard input ends. A step returns after how many seconds, unless woken, there may be
    more. As long as a damaged page of the file keeps it from working, that is told each second."""
    wait, started, told = 0.0, False, ""
    while _is_wanted(wait):
        try:
            if not started:
                start()
                started = True
            wait, told = step(), ""
        except BrokenPipeError:  # nobody is told any more: the server was killed
            return
        except StoreError as error:
            if str(error) != told:
                _logger.warning("background work waits: %s", error)
            wait, told = _RETRY_SECONDS, str(error)
            if isinstance(error, DamagedError):
                with suppress(BrokenPipeError):
                    tell(Progress(damaged=1))


def _is_wanted(seconds: float) -> bool:
    """Wait for a word of the server; False when it has ended."""
    ready, _, _ = select.select([0], [], [], seconds)
    return not ready or bool(os.read(0, 65536))
