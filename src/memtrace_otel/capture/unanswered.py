"""Searches that no answer has followed in their turn: one outside any turn may be theirs, but nothing tells.

That is so in a plain asyncio task or thread without a span around the turn: neither trace nor execution context joins
what was searched there with what is answered here.
"""

from __future__ import annotations

from collections import deque
from contextlib import suppress
from time import monotonic

from memtrace_otel.capture.fork import after_fork
from memtrace_otel.capture.recall import Turn

_SECONDS = 60.0  # an answer is not long in coming
_unanswered: deque[tuple[str, float]] = deque(maxlen=256)  # origins of searches and when they ended, oldest first


def searched(origin: str) -> None:
    """Note that a search has ended."""
    _unanswered.append((origin, monotonic()))  # atomic: no lock


def answered(turn: Turn | None) -> bool:
    """Note that an answer is given in `turn`; return whether one without a search in its turn may be of another's."""
    own = {search.origin for search in turn.retrievals()} if turn else set[str]()
    waiting = list(_unanswered)
    for search in waiting:
        if search[0] in own:
            with suppress(ValueError):  # another answer of the turn was first
                _unanswered.remove(search)
    return not own and bool(waiting) and monotonic() - waiting[-1][1] < _SECONDS


@after_fork
def forget() -> None:
    """Drop everything."""
    _unanswered.clear()
