"""Searches that no answer has followed in their turn: one outside any turn may be theirs, but nothing tells.

That is so in a plain asyncio task or thread without a span around the turn: neither trace nor execution context joins
what was searched there with what is answered here.
"""

from __future__ import annotations

import threading
from time import monotonic

from memtrace_otel.capture.fork import after_fork
from memtrace_otel.capture.recall import Turn

_SEARCHES = 256
_SECONDS = 60.0  # an answer is not long in coming
_lock = threading.Lock()
_unanswered: dict[str, float] = {}  # origins of searches and when they ended, oldest first


def searched(origin: str) -> None:
    """Note that a search has ended."""
    with _lock:
        _unanswered[origin] = monotonic()
        if len(_unanswered) > _SEARCHES:
            del _unanswered[next(iter(_unanswered))]


def answered(turn: Turn | None) -> bool:
    """Note that an answer is given in `turn`; return whether one without a search in its turn may be of another's."""
    own = turn.retrievals() if turn else ()
    with _lock:
        for search in own:
            _unanswered.pop(search.origin, None)
        newest = next(reversed(_unanswered.values()), None)
        return not own and newest is not None and monotonic() - newest < _SECONDS


def forget() -> None:
    """Drop everything."""
    _unanswered.clear()


@after_fork
def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # the parent may have held it
    forget()
