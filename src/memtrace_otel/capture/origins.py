"""Origins: the span that wrote the newest version of a variable in this process (wire contract, origin lookup (a))."""

from __future__ import annotations

import itertools
import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Protocol, TypeVar

from memtrace_otel.capture.config import config
from memtrace_otel.capture.fork import new_lock_after_fork

KeyT = TypeVar("KeyT")

Key = tuple[str, str]
"""Scope and ref of a variable."""
Version = tuple[int, str, bool, int]
"""(number of the write in this process, origin, whether the write deleted the record, hash of the text or 0)."""


class Reader(Protocol):
    """An operation that looks an origin up."""

    def unpublished(self, key: Key) -> Version | None:
        """The newest version that the reader, or an operation around it, has written and not published."""
        ...

    def families(self) -> list[str]:
        """Origins of the reader and of the operations around it, innermost first, and the trace id."""
        ...


reader_here: ContextVar[Reader | None] = ContextVar("memtrace_current_operation", default=None)
"""The operation that is current in this context."""

_EQUAL_TEXTS = 4096
_count = itertools.count()


def next_version(origin: str, deleted: bool = False, text: str = "") -> Version:
    """A version that is newer than all before it."""
    return next(_count), origin, deleted, hash(text)


def newest(one: Version | None, other: Version | None) -> Version | None:
    """The newer one of two versions, either of which may be missing."""
    return max(one, other) if one and other else one or other


class OriginTable:
    """LRU map (scope, ref) -> newest version, of MEMTRACE_ORIGIN_ENTRIES entries.

    The map holds versions of operations that succeeded; versions of a running operation are found only by operations
    below that one. Equal texts of two users are one key here. For the last 4,096 variables that only their text names,
    the table also holds the operations and traces that wrote them.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        new_lock_after_fork(self)
        self._versions: OrderedDict[Key, Version] = OrderedDict()
        self._within: OrderedDict[tuple[str, Key], Version] = OrderedDict()

    def wrote(self, scope: str, ref: str, origin: str, *, deleted: bool = False) -> None:
        """Remember that `origin` produced the newest version of `ref` or deleted it."""
        self.publish({(scope, ref): next_version(origin, deleted)})

    def publish(self, made: Mapping[Key, Version], families: Sequence[str] = ()) -> None:
        """Add versions that are newer than the known ones. Versions that only their text names are also stored for each
        family (operation or trace) that wrote them."""
        entries = config().origin_entries
        with self._lock:
            for key, version in made.items():
                _keep(self._versions, key, version, entries)
                for family in families:
                    _keep(self._within, (family, key), version, _EQUAL_TEXTS)

    def find(
        self, scope: str, ref: str, *, living: bool = False, reader: Reader | None = None, by_text: bool = False
    ) -> str:
        """Return the origin of the newest version that `reader` (by default the current operation) can know, '' for a
        variable that this process did not write.

        `living`: the record was read, so '' also if the newest version is a deletion, because another process has
        written the record again. `by_text`: only the text names the variable; the version nearest to the reader counts.
        """
        key, reader = (scope, ref), reader or reader_here.get()
        if reader is None:
            return self.newest(key, None, living)
        return self.newest(key, reader.unpublished(key), living, reader.families() if by_text else ())

    def newest(
        self,
        key: Key,
        version: Version | None,
        living: bool,
        families: Sequence[str] = (),
        text: str = "",
        verbatim: bool = False,
    ) -> str:
        """As `find`, for a reader that knows of an unpublished `version`. `families` are those of the reader, nearest
        first, for a variable that only its text names.

        `text` is the content that was read. Where a store never changes contents (`verbatim`), '' also if the newest
        version has another text: another process has written the record."""
        with self._lock:
            known = self._versions.get(key)
            if known is not None:
                self._versions.move_to_end(key)
            if families:
                near = (self._within.get((family, key)) for family in families)
                version = newest(version, next(filter(None, near), None))
        if known is not None and (version is None or (known > version and not families)):
            version = known
        if version is None or (living and version[2]):
            return ""
        return "" if verbatim and text and version[3] and version[3] != hash(text) else version[1]

    def forget(self) -> None:
        """Drop every entry."""
        self._lock = threading.RLock()
        self._versions.clear()
        self._within.clear()

    def __len__(self) -> int:
        return len(self._versions)


def _keep(versions: OrderedDict[KeyT, Version], key: KeyT, version: Version, most: int) -> None:
    """Make a version, or a newer known one, the last entry of at most `most`."""
    known = versions.pop(key, version)
    versions[key] = known if known > version else version
    while len(versions) > most:
        versions.popitem(last=False)


_table = OriginTable()


def origins() -> OriginTable:
    """The table of this process."""
    return _table
