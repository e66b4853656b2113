"""What model calls of a turn have answered, for those that come after them."""

from __future__ import annotations

import threading
from collections.abc import Container
from sys import getsizeof
from typing import NamedTuple

from memtrace_otel.capture.fork import new_lock_after_fork
from memtrace_otel.capture.recall.searches import ENTRY_BYTES

_LATELY = 512
_LATELY_BYTES = 4 << 20


class Answer(NamedTuple):
    """An answer: its identity and text, and the question that it was given to."""

    ref: str
    origin: str
    text: str
    question: str = ""
    asked: tuple[str, ...] = ()
    """Refs of the questions behind it: its own or, where it was made of answers, those behind them."""
    scope: str = ""
    """Of the memory that it was made of, '' when of none or several."""
    user: str = ""
    """Whom the program asked for, '' when it did not say."""
    telling: bool = False
    """Whether its words alone make it known in a later prompt: they are many, and none that it was given."""
    given: tuple[str, ...] = ()
    """Origins of the answers that were in its prompt, whether it was made of them or they were said before."""

    query: tuple[str, str] = ("", "")
    """Ref and text of its own question as it read it, '' where it did not say."""

    def size(self) -> int:
        """Bytes in memory, about."""
        return ENTRY_BYTES + getsizeof(self.text) + getsizeof(self.question) + 64 * len(self.asked + self.given)

    def may_be_of(self, user: str, scopes: Container[str]) -> bool:
        """Whether it may be of this user, and of the owner of one of these memories."""
        return (not user or self.user in ("", user)) and (not scopes or self.scope == "" or self.scope in scopes)


class Lately:
    """The newest telling answers of this process, wherever they were given: outside traces nothing else says to which
    of them a prompt may go back, a task or thread that has made one is over."""

    def __init__(self) -> None:
        self._lock = threading.RLock()
        new_lock_after_fork(self)
        self._answers: dict[str, Answer] = {}  # by origin, oldest first
        self._bytes = 0

    def add(self, answer: Answer) -> None:
        """Note an answer."""
        with self._lock:
            if answer.origin in self._answers:
                return
            self._answers[answer.origin] = answer
            self._bytes += answer.size()
            while len(self._answers) > _LATELY or self._bytes > _LATELY_BYTES:
                self._bytes -= self._answers.pop(next(iter(self._answers))).size()

    def newest_first(self) -> list[Answer]:
        """All of them."""
        with self._lock:
            return list(self._answers.values())[::-1]

    def forget(self) -> None:
        """Drop every answer (and the lock, which a fork may have left held)."""
        self._lock = threading.RLock()
        self._answers.clear()
        self._bytes = 0


lately = Lately()
