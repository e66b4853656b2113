"""What a step may cost the program: one that takes more rests until it has paid for it.

A step runs in the thread of the program and cannot be cut short. Each has an account of seconds, full at first (a first
call may import things). What it takes is taken off; what comes in, up to the full account, is a fortieth of the time
that passes, and for every call a hundredth of a second and a fifth of what the observed call itself took. While the
account is overdrawn the step is left out. So a step that hangs for a second is asked again after twenty and then every
forty seconds, one of half a second at every call costs a minute two seconds, and the program stays as fast as it was.

The time of the observed call counts because a clock cannot tell a slow step from a starved machine: there the call is
as slow as its step, and recording must not vanish because of load. The time of the processor would see neither a lock
nor a sleep.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass
from time import monotonic as clock

FULL = 0.5
"""Seconds on a full account."""
SHARE_OF_TIME, SHARE_OF_CALL, PER_CALL = 1 / 40, 1 / 5, 0.01
"""What comes in: shares of the time that passes and of the observed call's own time, and seconds for each call."""


class _Thread(threading.local):
    spent = 0.0


_thread = _Thread()


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
        _thread.spent += now - started
        balance = min(FULL, self.balance + (now - self.at) * SHARE_OF_TIME)
        self.balance, self.at = min(FULL, balance + earned - (now - started)), now
        return now
