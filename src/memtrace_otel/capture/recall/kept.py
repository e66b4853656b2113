"""The turns that are kept in memory: those of traces by their ids, the others as long as a context knows them. Of all
together no more than a budget: what was used longest ago is forgotten first."""

from __future__ import annotations

import threading
from time import perf_counter
from typing import TYPE_CHECKING
from weakref import ref

from memtrace_otel.capture.fork import new_lock_after_fork
from memtrace_otel.capture.guard import note_drop

if TYPE_CHECKING:
    from memtrace_otel.capture.recall.turn import Turn

_BYTES = 32 << 20  # of all turns together
_EMPTY_TURN_BYTES = 1024
_OVER_SECONDS = 60.0  # a turn that nothing was added to for so long is taken to be over


class Kept:
    """Every turn that holds something, and the bytes that they keep."""

    def __init__(self) -> None:
        self.of_traces: dict[str, Turn] = {}
        self._lock = threading.RLock()
        new_lock_after_fork(self)
        self._living: list[ref[Turn]] = []
        self._bytes = 0  # or less: what has died is found when room is needed

    @property
    def lock(self) -> threading.RLock:
        """Held by whoever changes a turn."""
        return self._lock

    def living(self) -> list[Turn]:
        """The turns that hold something."""
        return [turn for known in self._living if (turn := known())]

    def count(self, turn: Turn, size: int) -> None:
        """Count what was added to a turn; the lock is held."""
        if not turn.size:
            self._living.append(ref(turn))
            size += _EMPTY_TURN_BYTES
        turn.size += size
        self._bytes += size

    def make_room(self) -> None:
        """Where there is too much, forget the turns used longest ago until a quarter is free; one that may still go on
        is counted. The lock is held."""
        if self._bytes <= _BYTES:
            return
        turns = sorted(self.living(), key=lambda turn: turn.used)
        kept = [turn.kept_alive() for turn in turns]
        self._bytes = sum(kept)
        over = perf_counter() - _OVER_SECONDS
        forgotten: set[Turn] = set()
        for turn, size in zip(turns, kept, strict=True):
            if self._bytes <= _BYTES * 3 // 4:
                break
            self._bytes -= size
            if turn.used > over:
                note_drop("recall")
            turn.forget()
            forgotten.add(turn)
        self._living[:] = [ref(turn) for turn in turns if turn not in forgotten]
        for trace_id in [trace_id for trace_id, turn in self.of_traces.items() if turn in forgotten]:
            del self.of_traces[trace_id]

    def forget(self) -> None:
        """Drop every turn (and the lock, which a fork may have left held)."""
        self._lock = threading.RLock()
        self.of_traces.clear()
        self._living.clear()
        self._bytes = 0


kept = Kept()
