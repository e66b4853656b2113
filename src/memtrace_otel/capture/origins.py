"""Which span wrote the version of a variable that this process saw last (wire contract, origin lookup (a))."""

from __future__ import annotations

import threading
from collections import OrderedDict

from memtrace_otel.capture.config import config
from memtrace_otel.capture.fork import after_fork

Version = tuple[str, bool]
"""Origin, and whether it deleted the record."""


class OriginTable:
    """A map (scope, ref) -> newest version, of MEMTRACE_ORIGIN_ENTRIES entries; those written or read longest ago are
    forgotten first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._versions: OrderedDict[tuple[str, str], Version] = OrderedDict()

    def wrote(self, scope: str, ref: str, origin: str, *, deleted: bool = False) -> Version | None:
        """Remember that `origin` produced the newest version of `ref` or deleted it; return the version before."""
        key, version, entries = (scope, ref), (origin, deleted), config().origin_entries
        with self._lock:
            previous = self._versions.pop(key, None)
            self._versions[key] = version  # the last one now
            while len(self._versions) > entries:
                self._versions.popitem(last=False)
        return previous

    def take_back(self, scope: str, ref: str, origin: str, previous: Version | None) -> None:
        """Make `previous` the newest version again, unless a later one than `origin`'s was written meanwhile."""
        with self._lock:
            if self._versions.get((scope, ref), ("", False))[0] != origin:
                return
            if previous:
                self._versions[scope, ref] = previous
            else:
                del self._versions[scope, ref]

    def find(self, scope: str, ref: str, *, living: bool = False) -> str:
        """Return the origin of the newest version written here, '' when this process did not write it.

        Of a record that was read while it lived (`living`): '' also when the newest version is a tombstone, since
        somebody else has written it again.
        """
        key = scope, ref
        with self._lock:
            version = self._versions.get(key)
            if version is None:
                return ""
            self._versions.move_to_end(key)
        origin, deleted = version
        return "" if living and deleted else origin

    def forget(self) -> None:
        """Drop every entry (and the lock, which a fork may have left held)."""
        self._lock = threading.Lock()
        self._versions.clear()

    def __len__(self) -> int:
        return len(self._versions)


_table = OriginTable()


def origins() -> OriginTable:
    """The table of this process."""
    return _table


@after_fork
def _after_fork() -> None:
    _table._lock = threading.Lock()  # pyright: ignore[reportPrivateUsage]  # the parent may have held it
