"""The records that this process has seen: whose they are, for calls that name only an id, and which are gone when a
whole store or all memories of an owner are."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from typing import NamedTuple

from memtrace_otel.capture.fork import new_lock_after_fork

MOST = 10_000
_FEW = 16  # what a record was added for, beyond which it is not taken apart any more
_lock = threading.RLock()  # Mem0 works on its graph in threads
new_lock_after_fork(sys.modules[__name__])

Ids = frozenset[tuple[str, str]]
"""Further ids (agent, run) that a relation was added for, beside its owner."""


class KnownRecord(NamedTuple):
    """A record of a store; the same relation may be a record of several owners.

    `place` tells stores of one name apart in this process (`variables.place_of`).
    """

    store: str
    scope: str
    id: str
    place: int = 0


class KnownRecords:
    """Bounded; what was seen longest ago is forgotten first."""

    def __init__(self) -> None:
        self._records: OrderedDict[KnownRecord, set[Ids]] = OrderedDict()
        self._scopes: OrderedDict[str, str] = OrderedDict()

    def saw(self, record: KnownRecord, ids: Ids | None = None) -> None:
        """Note a record that is there, and what it was added for, if that is known."""
        if not record.scope:
            return
        with _lock:
            added_for = self._records.setdefault(record, set())
            if ids is not None and len(added_for) <= _FEW:  # one more than that stands for many
                added_for.add(ids)
            self._records.move_to_end(record)
            self._scopes[record.id] = record.scope
            self._scopes.move_to_end(record.id)
            for known in (self._records, self._scopes):
                while len(known) > MOST:
                    known.popitem(last=False)

    def __contains__(self, record: KnownRecord) -> bool:
        return record in self._records

    def scope_of(self, id: str) -> str:
        """Scope of the owner of a record, gone or not; '' when unknown."""
        return self._scopes.get(id, "")

    def take(
        self, store: str, *, place: int = 0, scope: str = "", prefix: str = "", ids: Ids = frozenset()
    ) -> list[KnownRecord]:
        """Forget and return the records of a store (of one owner, with ids that begin with `prefix`; with `ids`, those
        added for nothing but them: one added for many stays)."""
        found: list[KnownRecord] = []
        with _lock:
            for record, added_for in list(self._records.items()):  # a signal may come
                if (record.store, record.place) != (store, place) or scope not in ("", record.scope):
                    continue
                if not record.id.startswith(prefix):
                    continue
                if ids:
                    gone = {added for added in added_for if ids <= added}
                    if not gone or len(added_for) > _FEW:
                        continue
                    added_for -= gone
                    if added_for:
                        continue
                found.append(record)
            for record in found:
                self._records.pop(record, None)
        return found

    def lost(self, record: KnownRecord) -> None:
        """Note that a record is gone."""
        with _lock:
            self._records.pop(record, None)
