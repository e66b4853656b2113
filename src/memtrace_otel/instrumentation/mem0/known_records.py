"""The records that this process has seen: whose they are, for calls that name only an id, and which are gone when a
whole store or all memories of an owner are."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

MOST = 10_000

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
        added_for = self._records.setdefault(record, set())
        if ids is not None:
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
        added for nothing but them)."""
        found = [
            record
            for record in list(self._records)
            if (record.store, record.place) == (store, place)
            and scope in ("", record.scope)
            and record.id.startswith(prefix)
            and self._goes(record, ids)
        ]
        for record in found:
            self.lost(record)
        return found

    def _goes(self, record: KnownRecord, ids: Ids) -> bool:
        """Whether nothing is left of a record when what was added for `ids` goes."""
        if not ids:
            return True
        added_for = self._records.get(record, set())
        gone = {added for added in added_for if ids <= added}
        added_for -= gone
        return bool(gone) and not added_for

    def lost(self, record: KnownRecord) -> None:
        """Note that a record is gone."""
        self._records.pop(record, None)
