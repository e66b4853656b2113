"""Records of vector stores and key-value stores that this process has written."""

from __future__ import annotations

import threading
from collections import OrderedDict

from memtrace_otel.capture import Operation, origins, recall
from memtrace_otel.capture.fork import new_lock_after_fork
from memtrace_otel.semconv import Action, Role

_MOST = 10_000
_Record = tuple[str, str]  # scope, ref


def answers_of(turn: recall.Turn | None, text: str) -> list[recall.Answer]:
    """The answers of a turn with exactly this text, newest first."""
    said = text.strip()
    given = turn.newest_answers() if turn and said else []
    return list({answer.origin: answer for answer in given if answer.text.strip() == said}.values())


class Records:
    """The records that this process has written and not deleted since. Bounded."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        new_lock_after_fork(self)
        self._written: OrderedDict[_Record, None] = OrderedDict()
        self._deleted: OrderedDict[_Record, None] = OrderedDict()

    def holds(self, scope: str, ref: str) -> bool:
        """Whether this process wrote the newest version of a record, and the version is no tombstone."""
        return bool(origins().find(scope, ref)) and (scope, ref) not in self._deleted

    def missed(self, scope: str, ref: str) -> None:
        """Note that a record has expired: the next write adds a record."""
        if self.holds(scope, ref):
            self._move((scope, ref), self._written, self._deleted)

    def write(
        self, operation: Operation, ref: str, content: object, sources: list[int], *, replaces: bool = False
    ) -> None:
        """Record a new version, with the replaced version among its sources."""
        replaces = replaces or self.holds(operation.scope, ref)
        if replaces:
            sources = [*sources, operation.read(ref, role=Role.PREVIOUS)]
        action = Action.UPDATE if replaces else Action.ADD
        operation.wrote(ref, action=action, content=content, sources=sources)
        self._move((operation.scope, ref), self._deleted, self._written)

    def delete(self, operation: Operation, ref: str, sources: list[int] | None = None) -> None:
        """Record the tombstone of a record."""
        previous = operation.read(ref, role=Role.PREVIOUS)
        operation.wrote(ref, action=Action.DELETE, sources=[*(sources or ()), previous])
        self._move((operation.scope, ref), self._written, self._deleted)

    def delete_all(self, operation: Operation) -> int:
        """Record the tombstones of all known records of the operation's scope; returns their number."""
        with self._lock:
            refs = [ref for scope, ref in list(self._written) if scope == operation.scope]
        for ref in refs:
            self.delete(operation, ref)
        return len(refs)

    def _move(self, record: _Record, source: OrderedDict[_Record, None], target: OrderedDict[_Record, None]) -> None:
        with self._lock:
            source.pop(record, None)
            target[record] = None
            target.move_to_end(record)
            if len(target) > _MOST:
                target.popitem(last=False)
