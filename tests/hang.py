"""A guard against code that takes for ever. What takes how long is measured in tests/bench."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

SECONDS = 60
"""Of the process's own CPU time, so that a busy machine changes nothing: hundreds of times what is needed."""


@contextmanager
def guarded_against_hanging(seconds: float = SECONDS) -> Iterator[None]:
    """Fail after so much CPU time; what is looked at grows its time with more than the length of its input, or ends."""

    def give_up(number: int, frame: FrameType | None) -> None:
        raise AssertionError(f"not done after {seconds:g} s of CPU time")

    before = signal.signal(signal.SIGVTALRM, give_up)
    signal.setitimer(signal.ITIMER_VIRTUAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
