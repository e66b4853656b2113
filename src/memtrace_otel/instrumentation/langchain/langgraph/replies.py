"""Which of the answers that a turn has given each message of a thread is."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from typing import NamedTuple

from memtrace_otel.capture import recall
from memtrace_otel.instrumentation.langchain.identity import answers_of
from memtrace_otel.instrumentation.langchain.langgraph.threads import Entry

_KEPT = 10_000


class Reply(NamedTuple):
    """The answer that a message is; `sure` False when equal ones leave a choice."""

    answer: recall.Answer
    sure: bool


class Replies:
    """Nodes side by side may give equal answers. What a message is known to be made of tells which it is; for one
    that the program has made it is the newest that no other message is. Bounded."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, str] = OrderedDict()  # origin of an answer -> the message that it is

    def find(self, entries: Iterable[Entry], turn: recall.Turn | None) -> dict[str, Reply]:
        """The answers among new messages and texts, by ref."""
        equal = {e.ref: answers_of(turn, e.text) for e in entries if e.role in ("assistant", "text")}
        told = {e.ref: {origin for _, origin in e.made_of} for e in entries}
        found: dict[str, Reply] = {}
        for ref, answers in equal.items():
            own = next((answer for answer in answers if answer.origin in told[ref]), None)
            if own is not None:
                found[ref] = Reply(own, sure=True)
                self._keep(own.origin, ref)
        for ref, answers in equal.items():
            if answers and ref not in found:
                free = [answer for answer in answers if self._kept.get(answer.origin, ref) == ref]
                found[ref] = Reply((free or answers)[0], sure=len(free or answers) == 1)
                self._keep(found[ref].answer.origin, ref)
        return found

    def _keep(self, origin: str, ref: str) -> None:
        self._kept.setdefault(origin, ref)
        while len(self._kept) > _KEPT:
            self._kept.popitem(last=False)
