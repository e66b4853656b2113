"""What a store's records are named after, and which of them this process has written: vector stores, key-value stores
and checkpointers alike."""

from __future__ import annotations

import threading
from collections import OrderedDict

from memtrace_otel.capture import Operation, origins, recall
from memtrace_otel.capture.fork import new_lock_after_fork
from memtrace_otel.semconv import Action, Role

_MOST = 10_000
_Record = tuple[str, str]  # scope, ref


def answer_of(turn: recall.Turn | None, text: str) -> recall.Recalled | None:
    """The answer of a turn that a text is, None when nobody of this turn said it."""
    said = text.strip()
    return next((a for a in turn.newest_answers() if a.text.strip() == said), None) if turn and said else None


class Records:
    """The records that this process has written and not deleted since. Bounded like the table of origins."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        new_lock_after_fork(self)
        self._written: OrderedDict[_Record, None] = OrderedDict()
        self._deleted: OrderedDict[_Record, None] = OrderedDict()

    def holds(self, scope: str, ref: str) -> bool:
        """Whether the newest version of a record is one that this process has written and no tombstone."""
        return bool(origins().find(scope, ref)) and (scope, ref) not in self._deleted

    def missed(self, scope: str, ref: str) -> None:
        """Note that a record is no more, which has expired, say: what is written next does not replace it."""
        if self.holds(scope, ref):
            self._move((scope, ref), self._written, self._deleted)

    def write(
        self, operation: Operation, ref: str, content: object, sources: list[int], *, replaces: bool = False
    ) -> str:
        """Record a new version: it reads the one that it replaces, if any. Returns the action."""
        replaces = replaces or self.holds(operation.scope, ref)
        if replaces:
            sources = [*sources, operation.read(ref, role=Role.PREVIOUS)]
        action = Action.UPDATE if replaces else Action.ADD
        operation.wrote(ref, action=action, content=content, sources=sources)
        self._move((operation.scope, ref), self._deleted, self._written)
        return action

    def delete(self, operation: Operation, ref: str, sources: list[int] | None = None) -> None:
        """Record the tombstone of a record."""
        previous = operation.read(ref, role=Role.PREVIOUS)
        operation.wrote(ref, action=Action.DELETE, sources=[*(sources or ()), previous])
        self._move((operation.scope, ref), self._written, self._deleted)

    def delete_all(self, operation: Operation) -> int:
        """Record the tombstones of all records of the operation's scope, and return how many; the newest 10,000
        records are known by their scope."""
        with self._lock:
            refs = [ref for scope, ref in self._written if scope == operation.scope]
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
