"""The inside of a background process: work in steps, reports to the server, an end with the server.

A line on standard input wakes the process; the end of standard input means that the server has ended. Each line on
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
from memtrace_otel.sources import DamagedError, SourceError

_logger = logging.getLogger(__name__)
_RETRY_SECONDS = 1.0

Tell = Callable[[Progress], None]
"""Reports to the server; an empty report is not sent."""


def set_up(niceness: int) -> Tell:
    """Set up this process; return the function that reports to the server."""
    told = os.fdopen(os.dup(sys.stdout.fileno()), "w")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())  # other output, of metrics for example, is no report
    for ignored in (signal.SIGINT, signal.SIGTERM):
        signal.signal(ignored, signal.SIG_IGN)  # the terminal signals the whole process group; the server decides
    os.nice(niceness)
    logging.basicConfig(format="memtrace-otel: %(message)s")

    def tell(progress: Progress) -> None:
        if progress:
            print(progress.line(), file=told, flush=True)

    return tell


def work(start: Callable[[], None], step: Callable[[], float], tell: Tell) -> None:
    """Run `start`, then `step` until standard input ends. A step returns the seconds until the next step is needed.

    While a damaged page of the file prevents the work, a report says so each second.
    """
    wait, started, told = 0.0, False, ""
    while _is_wanted(wait):
        try:
            if not started:
                start()
                started = True
            wait, told = step(), ""
        except BrokenPipeError:  # the server was killed
            return
        except SourceError as error:
            if str(error) != told:
                _logger.warning("background work waits: %s", error)
            wait, told = _RETRY_SECONDS, str(error)
            if isinstance(error, DamagedError):
                with suppress(BrokenPipeError):
                    tell(Progress(damaged=1))


def _is_wanted(seconds: float) -> bool:
    """Wait to be woken, for so many seconds; return False when the server has ended."""
    ready, _, _ = select.select([0], [], [], seconds)
    return not ready or bool(os.read(0, 65536))
