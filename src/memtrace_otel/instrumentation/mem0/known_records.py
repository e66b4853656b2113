"""The records that this process has seen: whose they are, for calls that name only an id, and which are gone when a
whole store or all memories of an owner are."""

from __future__ import annotations

from collections import OrderedDict
from typing import NamedTuple

MOST = 10_000


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
        self._records: OrderedDict[KnownRecord, None] = OrderedDict()
        self._scopes: OrderedDict[str, str] = OrderedDict()

    def saw(self, record: KnownRecord) -> None:
        """Note a record that is there."""
        if not record.scope:
            return
        self._records[record] = None
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

    def take(self, store: str, *, place: int = 0, scope: str = "", prefix: str = "") -> list[KnownRecord]:
        """Forget and return the records of a store (of one owner, with ids that begin with `prefix`)."""
        found = [
            record
            for record in list(self._records)
            if (record.store, record.place) == (store, place)
            and scope in ("", record.scope)
            and record.id.startswith(prefix)
        ]
        for record in found:
            self.lost(record)
        return found

    def lost(self, record: KnownRecord) -> None:
        """Note that a record is gone."""
        self._records.pop(record, None)
