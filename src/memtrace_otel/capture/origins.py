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
    """What the lookup of an origin asks of the operation that reads."""

    def unpublished(self, key: Key) -> Version | None:
        """The newest version that the reader, or an operation around it, has written and not published."""
        ...

    def families(self) -> list[str]:
        """Origins of the reader and of the operations around it, innermost first, and the trace id."""
        ...


reader_here: ContextVar[Reader | None] = ContextVar("memtrace_current_operation", default=None)
"""The operation that is current in this context."""

_EQUAL_TEXTS = 4096
_FAILED = 4096
_count = itertools.count()


def next_version(origin: str, deleted: bool = False, text: str = "") -> Version:
    """A version that is newer than all before it."""
    return next(_count), origin, deleted, hash(text)


def newest(one: Version | None, other: Version | None) -> Version | None:
    """The newer one of two versions, either of which may be missing."""
    return max(one, other) if one and other else one or other


class OriginTable:
    """LRU map (scope, ref) -> newest version, of MEMTRACE_ORIGIN_ENTRIES entries.

    It holds what operations have published. What a running one has written is found by those below it alone: it may
    still fail. Equal texts that are made at the same time for two users are one variable here; of the last 4,096 of
    those that only their text names the table knows, too, within which operations and traces they were written.
    """

    def __init__(self) -> None:
        self._lock = threading.RLock()
        new_lock_after_fork(self)
        self._versions: OrderedDict[Key, Version] = OrderedDict()
        self._within: OrderedDict[tuple[str, Key], Version] = OrderedDict()
        self._failed: OrderedDict[Key, Version] = OrderedDict()

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

    def doubt(self, tried: Mapping[Key, Version]) -> None:
        """Add the writes of failed operations (the last 4,096): the store may have them all the same."""
        with self._lock:
            for key, version in tried.items():
                _keep(self._failed, key, version, _FAILED)

    def find(
        self, scope: str, ref: str, *, living: bool = False, reader: Reader | None = None, by_text: bool = False
    ) -> str:
        """Return the origin of the newest version written here that `reader` (the current operation) may know of, ''
        when this process did not write it.

        Of a record that was read while it lived (`living`): '' also when the newest version is a tombstone, since
        somebody else has written it again. Of a variable that only its text names (`by_text`), the newest one of those
        nearest to the reader.
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
        """The same on a hot path, for a reader that knows of an unpublished `version`; with `families`, those nearest
        first, of a variable that only its text names.

        `text` is what was read. Where it is always what was written (`verbatim`), and where a later operation failed to
        write something else: '' also when the newest version says another, since somebody has changed the record. What
        says the words of the one that failed, and nobody's before, was written by that one."""
        with self._lock:
            tried = self._failed.get(key) if living and text and self._failed else None
            known = self._versions.get(key)
            if known is not None:
                self._versions.move_to_end(key)
            if families:
                near = (self._within.get((family, key)) for family in families)
                version = newest(version, next(filter(None, near), None))
        if known is not None and (version is None or (known > version and not families)):
            version = known
        if tried is not None and (version is None or tried > version):
            new = version is None or version[2] or version[3] != tried[3]  # else it says what was there before
            if new and tried[3] == hash(text) and not tried[2]:
                return tried[1]
            verbatim = True
        if version is None or (living and version[2]):
            return ""
        return "" if verbatim and text and version[3] and version[3] != hash(text) else version[1]

    def forget(self) -> None:
        """Drop every entry."""
        self._lock = threading.RLock()
        self._versions.clear()
        self._within.clear()
        self._failed.clear()

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
