"""Which span wrote the version of a variable that this process saw last (wire contract, origin lookup (a))."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict


class OriginTable:
    """A bounded map (scope, ref) -> origin; the entries written or read longest ago are forgotten first."""

    def __init__(self, entries: int) -> None:
        self._entries = max(1, entries)
        self._lock = threading.Lock()
        self._origins: OrderedDict[tuple[str, str], str] = OrderedDict()

    def wrote(self, scope: str, ref: str, origin: str) -> None:
        """Remember that `origin` produced the newest version of `ref`."""
        with self._lock:
            self._origins[scope, ref] = origin
            self._origins.move_to_end((scope, ref))
            if len(self._origins) > self._entries:
                self._origins.popitem(last=False)

    def find(self, scope: str, ref: str) -> str:
        """Return the origin of the newest version written here, '' when this process did not write it."""
        with self._lock:
            origin = self._origins.get((scope, ref), "")
            if origin:
                self._origins.move_to_end((scope, ref))
            return origin

    def forget(self) -> None:
        """Drop every entry (and the lock, which a fork may have left held)."""
        self._lock = threading.Lock()
        self._origins.clear()

    def __len__(self) -> int:
        return len(self._origins)


_table: OriginTable | None = None


def origins() -> OriginTable:
    """The table of this process."""
    global _table
    if _table is None:
        from memtrace_otel.capture.config import config

        _table = OriginTable(config().origin_entries)
    return _table


def _after_fork() -> None:
    if _table is not None:
        _table._lock = threading.Lock()  # pyright: ignore[reportPrivateUsage]  # the parent may have held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
