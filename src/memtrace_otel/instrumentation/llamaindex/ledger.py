"""What this process knows to be stored: the newest version of each chunk and document, by owner."""

from __future__ import annotations

import sys
import threading
from collections import OrderedDict
from dataclasses import dataclass, replace

from memtrace_otel.capture.fork import new_lock_after_fork
from memtrace_otel.instrumentation.llamaindex.nodes import Piece

_RECORDS = 50_000
_lock = threading.RLock()
new_lock_after_fork(sys.modules[__name__])


@dataclass(frozen=True, slots=True)
class Stored:
    """A stored version: its ref, the fingerprint of its content and the id of the document it was cut from."""

    ref: str
    fingerprint: str
    document: str


class Ledger:
    """Bounded; what was stored longest ago is forgotten first."""

    def __init__(self) -> None:
        self._stored: OrderedDict[tuple[str, str], Stored] = OrderedDict()
        self._scopes: dict[str, str] = {}
        self._chunks: dict[tuple[str, str], dict[str, None]] = {}

    def find(self, scope: str, ref: str) -> Stored | None:
        """The version stored for this owner."""
        return self._stored.get((scope, ref))

    def scope_of(self, ref: str) -> str:
        """The owner for whom a record was stored last, '' when unknown."""
        return self._scopes.get(ref, "")

    def holds(self, piece: Piece) -> bool:
        """Whether this very content is stored under this id, for any owner: another copy is no new version."""
        stored = self._stored.get((self.scope_of(piece.ref), piece.ref))
        return stored is not None and stored.fingerprint == piece.fingerprint

    def put(self, scope: str, piece: Piece) -> None:
        """Note that a version was stored."""
        with _lock:
            self._forget(scope, piece.ref)  # it may have been cut from another document
            self._stored[scope, piece.ref] = Stored(piece.ref, piece.fingerprint, piece.document)
            self._scopes[piece.ref] = scope
            self._chunks.setdefault((scope, piece.document), {})[piece.ref] = None
            while len(self._stored) > _RECORDS:
                self._forget(*next(iter(self._stored)))

    def remove(self, scope: str, ref: str) -> Stored | None:
        """Note that a record was deleted; returns the version that was stored."""
        with _lock:
            return self._forget(scope, ref)

    def doubt(self, scope: str) -> None:
        """Note that any record of an owner may be gone: whatever is stored next is a new version."""
        with _lock:
            for stored in self._of(scope):
                self._stored[scope, stored.ref] = replace(stored, fingerprint="")

    def cut_from(self, scope: str, document: str) -> list[Stored]:
        """The stored chunks of a document."""
        with _lock:
            refs = list(self._chunks.get((scope, document), ()))
            return [self._stored[scope, ref] for ref in refs if (scope, ref) in self._stored]  # a fork may come between

    def all_of(self, scope: str) -> list[Stored]:
        """Everything stored for an owner."""
        with _lock:
            return self._of(scope)

    def _of(self, scope: str) -> list[Stored]:
        known = list(self._stored.items())  # a signal may come
        return [stored for (owner, _), stored in known if owner == scope]

    def _forget(self, scope: str, ref: str) -> Stored | None:
        stored = self._stored.pop((scope, ref), None)
        if stored is not None:
            if self._scopes.get(ref) == scope:
                del self._scopes[ref]
            siblings = self._chunks.get((scope, stored.document), {})
            siblings.pop(ref, None)
            if not siblings:
                self._chunks.pop((scope, stored.document), None)
        return stored
