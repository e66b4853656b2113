"""What a store's records are named after, and which of them this process has written: vector stores, key-value stores
and checkpointers alike."""

from __future__ import annotations

import re
import threading
from collections import OrderedDict
from collections.abc import Mapping
from typing import TypeVar
from weakref import WeakKeyDictionary

from memtrace_otel.capture import Operation, origins, recall
from memtrace_otel.capture.fork import new_lock_after_fork
from memtrace_otel.instrumentation.chat_history.messages import Version
from memtrace_otel.semconv import Action, Role

_MOST = 10_000
_Key = TypeVar("_Key")
_Result = tuple[str, int]  # id of the call, hash of the text
_Record = tuple[str, str]  # scope, ref
_RUN = re.compile(r"run-+([0-9a-f-]{36})(?:-0)?$")


def answers_of(turn: recall.Turn | None, text: str) -> list[recall.Answer]:
    """The answers of a turn that a text may be, the newest first."""
    said = text.strip()
    given = turn.newest_answers() if turn and said else []
    return list({answer.origin: answer for answer in given if answer.text.strip() == said}.values())


class Said:
    """What messages are made of: replies by the ids of their runs and of their messages, in whichever turn; what tools
    have given by the calls that they answer and by its text, within a turn. Bounded."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        new_lock_after_fork(self)
        self._replies: OrderedDict[str, tuple[Version, ...]] = OrderedDict()
        self._results: WeakKeyDictionary[recall.Turn, OrderedDict[_Result, tuple[Version, ...]]] = WeakKeyDictionary()

    def note_reply(self, versions: tuple[Version, ...], *ids: str) -> None:
        """Note what the reply of a run, or the message with one of these ids, is made of."""
        with self._lock:
            _add(self._replies, dict.fromkeys(map(_run_of, ids if versions else ()), versions))

    def note_result(self, turn: recall.Turn, call: str, text: str, versions: tuple[Version, ...]) -> None:
        """Note what a tool has made its answer to a call of."""
        with self._lock:
            _add(self._results.setdefault(turn, OrderedDict()), {(call, hash(text)): versions})

    def of_reply(self, id: str) -> tuple[Version, ...]:
        """What the reply with this id is made of, nothing when none with that was given here."""
        return self._replies.get(_run_of(id), ())

    def of_result(self, call: str, text: str) -> tuple[Version, ...]:
        """What a tool has made its answer to a call of in this turn, nothing where that is not known."""
        turn = recall.turn_here()
        with self._lock:
            given = self._results.get(turn) if turn else None
            return given.get((call, hash(text)), ()) if given else ()


def _run_of(id: str) -> str:
    """The run that LangChain has named a message after, the id itself of one with another."""
    run = _RUN.search(id)
    return run[1] if run else id


def _add(known: OrderedDict[_Key, tuple[Version, ...]], new: Mapping[_Key, tuple[Version, ...]]) -> None:
    known.update(new)
    while len(known) > _MOST:
        known.popitem(last=False)


said = Said()


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
