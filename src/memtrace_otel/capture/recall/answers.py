"""What model calls of a turn have answered, for those that come after them."""

from __future__ import annotations

from collections.abc import Container
from sys import getsizeof
from typing import NamedTuple

from memtrace_otel.capture.recall.searches import ENTRY_BYTES


class Answer(NamedTuple):
    """An answer: its identity and text, and the question that it was given to."""

    ref: str
    origin: str
    text: str
    question: str = ""
    asked: tuple[str, ...] = ()
    """Refs of the questions behind it: its own, and those of the answers that it was made of."""
    scope: str = ""
    """Of the memory that it was made of, '' when of none or several."""
    user: str = ""
    """Whom the program asked for, '' when it did not say."""
    telling: bool = False
    """Whether its words alone make it known in a later prompt: they are many, and none that it was given."""
    elsewhere: bool = False
    """Whether it was given in a copy of the context that the turn is of."""

    def size(self) -> int:
        """Bytes in memory, about."""
        return ENTRY_BYTES + getsizeof(self.text) + getsizeof(self.question) + 64 * len(self.asked)

    def may_be_of(self, user: str, scopes: Container[str]) -> bool:
        """Whether it may be of this user, and of the owner of one of these memories."""
        return (not user or self.user in ("", user)) and (not scopes or self.scope == "" or self.scope in scopes)
