"""What a store's records are named after, and which of them this process has written: vector stores, key-value stores
and checkpointers alike."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Container

from memtrace_otel.capture import Operation, origins, recall
from memtrace_otel.capture.fork import new_lock_after_fork
from memtrace_otel.semconv import Action, Role

_MOST = 10_000
_Record = tuple[str, str]  # scope, ref
_RUN = re.compile(r"run-+([0-9a-f-]{36})(?:-0)?$")


def answers_of(turn: recall.Turn | None, text: str) -> list[recall.Answer]:
    """The answers of a turn that a text may be, the newest first."""
    said = text.strip()
    given = turn.newest_answers() if turn and said else []
    return list({answer.origin: answer for answer in given if answer.text.strip() == said}.values())


class Given:
    """The origins of answers, by the ids of their runs and messages. Bounded."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        new_lock_after_fork(self)
        self._origins: OrderedDict[str, str] = OrderedDict()

    def note(self, origin: str, *ids: str) -> None:
        """Note the answer of a run or message with these ids."""
        with self._lock:
            self._origins.update(dict.fromkeys(ids, origin))
            while len(self._origins) > _MOST:
                self._origins.popitem(last=False)

    def note_new(self, text: str, before: Container[str], *ids: str) -> None:
        """Note the answer with this text that came after those of the origins `before` and that no other call has
        noted; of several (equal ones at the very same time) none."""
        new = [answer.origin for answer in answers_of(recall.turn_here(), text) if answer.origin not in before]
        if len(new) > 1:
            with self._lock:
                noted = set(self._origins.values())
            new = [origin for origin in new if origin not in noted]
        if len(new) == 1:
            self.note(new[0], *ids)

    def origin_of(self, id: str) -> str:
        """Origin of the answer that a message with this id is, '' when it tells of none that was given here."""
        run = _RUN.search(id)
        return self._origins.get(run[1] if run else id, "")


_given = Given()
note_answer, note_new_answer, origin_of_message = _given.note, _given.note_new, _given.origin_of


class Records:
    """The records that this process has written and not deleted since. Bounded like the table of origins."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
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
            refs = [ref for scope, ref in list(self._written) if scope == operation.scope]  # a signal may come
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
