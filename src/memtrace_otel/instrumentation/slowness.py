"""What a step may cost the program: one that takes more rests, a minute at the most.

A step runs in the thread of the program and cannot be cut short. Each has an account of seconds, full at first (a
first call may import things). What it takes at a time past a twentieth of a second is taken off; what comes in, up to
the full account, is a fortieth of the time that passes, and a fifth of what the observed call itself took. While the
account is overdrawn the step is left out. So a step that hangs for a second is asked again after about twenty and then
forty seconds, one of half a second at every call costs a minute two seconds, and the program stays as fast as it was.

A clock cannot tell a slow step from a starved machine, or from threads that wait for each other's turn at the
interpreter, and recording must not vanish because of load: hence the twentieth that is free, the share of the observed
call, which is as slow as its step then, and that a step takes only its part of what several do at the same time. The
time of the processor would see neither a lock nor a sleep.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from time import monotonic as clock

FULL, EMPTY = 0.5, -1.5
"""Seconds on a full account, and on one that is as overdrawn as can be: its step rests for a minute."""
FREE = 0.05
"""Seconds that a step may take before its call, and after it, at no charge."""
SHARE_OF_TIME, SHARE_OF_CALL = 1 / 40, 1 / 5
"""What comes in: shares of the time that passes and of the observed call's own time."""
_AT_ONCE = 16
"""Most threads that are taken to wait for each other."""


class _Thread(threading.local):
    spent = 0.0


_thread = _Thread()
_working: dict[int, None] = {}  # the threads that steps are taking time of; every access is atomic: no lock


def starts() -> float:
    """Note that a step takes this thread's time from now on; return the time now."""
    _working[threading.get_ident()] = None
    return clock()


def spent_here() -> float:
    """Seconds that all steps have taken of this thread: they are no call's own time."""
    return _thread.spent


@dataclass(slots=True)
class Slowness:
    """The account of one step, wherever it is wrapped. Threads share it without a lock: it need not be exact."""

    balance: float = FULL
    at: float = 0.0
    left_out: int = 0
    """Calls that were left out and not yet told of."""

    def rests(self) -> bool:
        """Whether the account is overdrawn."""
        return self.balance < 0 and self.balance + (clock() - self.at) * SHARE_OF_TIME < 0

    def spend(self, started: float, earned: float = 0.0) -> float:
        """Take off the time since `started`, but for what was `earned` by the call; return the time now."""
        now = clock()
        took = now - started
        _thread.spent += took
        charged = max(0.0, took / min(_AT_ONCE, len(_working) or 1) - FREE)
        _working.pop(threading.get_ident(), None)
        balance = min(FULL, self.balance + (now - self.at) * SHARE_OF_TIME)
        self.balance, self.at = max(EMPTY, min(FULL, balance + earned - charged)), now
        return now
