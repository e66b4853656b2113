"""Which span wrote the version of a variable that this process saw last (wire contract, origin lookup (a))."""

from __future__ import annotations

import os
import threading
from collections import OrderedDict

from memtrace_otel.capture.config import config


class OriginTable:
    """A map (scope, ref) -> origin of MEMTRACE_ORIGIN_ENTRIES entries; those written or read longest ago are forgotten
    first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._origins: OrderedDict[tuple[str, str], str] = OrderedDict()

    def wrote(self, scope: str, ref: str, origin: str) -> str:
        """Remember that `origin` produced the newest version of `ref`; return the origin of the one before, or ''."""
        entries = config().origin_entries
        with self._lock:
            previous = self._origins.get((scope, ref), "")
            self._origins[scope, ref] = origin
            self._origins.move_to_end((scope, ref))
            while len(self._origins) > entries:
                self._origins.popitem(last=False)
        return previous

    def take_back(self, scope: str, ref: str, origin: str, previous: str) -> None:
        """Make `previous` the newest version again, unless a later one than `origin`'s was written meanwhile."""
        with self._lock:
            if self._origins.get((scope, ref)) != origin:
                return
            if previous:
                self._origins[scope, ref] = previous
            else:
                del self._origins[scope, ref]

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


_table = OriginTable()


def origins() -> OriginTable:
    """The table of this process."""
    return _table


def _after_fork() -> None:
    _table._lock = threading.Lock()  # pyright: ignore[reportPrivateUsage]  # the parent may have held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
