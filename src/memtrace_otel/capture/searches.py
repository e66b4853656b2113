"""Searches and answers that a turn stores, and the searches that wait for their answer."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection
from contextvars import ContextVar
from time import perf_counter
from typing import NamedTuple

from memtrace_otel.capture.fork import after_fork
from memtrace_otel.capture.layout import Read
from memtrace_otel.capture.quotes import Recalled
from memtrace_otel.model import ref_kind
from memtrace_otel.semconv import RefKind, Role

ENTRY_BYTES = 256
"""Bytes of an entry in memory without its text."""
ACTIVE_SECONDS = 60.0
"""A search waits this long for its answer."""
_SEARCHES = 256

Place = tuple[object, ...]
"""A run in the tree of a library's runs: ids from the outermost run to it."""
place: ContextVar[Place] = ContextVar("memtrace_place", default=())
"""The run of this context, for libraries that report their runs."""


class Answer(NamedTuple):
    """An answer: its identity and text, and the question that it answers."""

    ref: str
    origin: str
    text: str
    question: str = ""
    asked: tuple[str, ...] = ()
    """Refs of the questions behind the answer: its own or, if it was made of answers, those behind them."""
    scope: str = ""
    """Scope of the memory that the answer was made of, '' for none or several."""
    user: str = ""
    """User that the program named, '' for none."""
    telling: bool = False
    """Whether its words alone identify the answer in a later prompt: the answer is long, and no input held them."""
    given: tuple[str, ...] = ()
    """Origins of the answers in its prompt."""
    query: tuple[str, str] = ("", "")
    """Ref and text of its own question as an input, '' for none."""
    about: Answer | None = None
    """The reply to the user that the answer does upkeep for, for a summary, a title or notes."""
    tasks: frozenset[str] = frozenset()
    """The phrases of its prompt that ask for upkeep."""

    def may_be_of(self, user: str, scopes: Collection[str]) -> bool:
        """Whether the answer may be of this user, and of the owner of one of these memories."""
        return (not user or self.user in ("", user)) and (not scopes or self.scope == "" or self.scope in scopes)


class Retrieval(NamedTuple):
    """One search. `read` are the inputs of its operation: queries and hits."""

    origin: str
    scope: str
    read: list[Read]
    place: Place
    ended: float
    """Seconds of `perf_counter`."""
    context: str
    """Ref of the context that the search made for the answer."""
    given_to: dict[str | int, None]
    """Turns whose model calls were given hits of this search: trace ids, or numbers of turns outside a trace."""
    certain: bool = True
    """Whether the origin of every record is known."""

    def query(self) -> Recalled | None:
        """The words that were searched for, None if the operation did not record them."""
        return next(reversed(self.queries()), None)

    def queries(self) -> list[Recalled]:
        """Every query, the words that were searched for last."""
        return self._inputs(Role.QUERY)

    def hits(self) -> list[Recalled]:
        """The records that the search returned."""
        return self._inputs(Role.HIT)

    def _inputs(self, role: str) -> list[Recalled]:
        return [
            Recalled(ref, origin, text, self.scope, self.origin)
            for ref, played, origin, text, _ in self.read
            if played == role
        ]


def size_of(entry: Retrieval | Answer | Recalled) -> int:
    """Bytes in memory, about."""
    if isinstance(entry, Retrieval):
        return ENTRY_BYTES * (len(entry.read) + 1) + sum([one[3].__sizeof__() for one in entry.read])
    return ENTRY_BYTES + entry.text.__sizeof__()


def asked_for(done: Retrieval) -> str:
    query = done.query()
    return query.ref if query else ""


def of_history(done: Retrieval) -> bool:
    """Whether a library run read the messages of its own conversation."""
    return bool(done.place) and any(ref_kind(hit.ref) == RefKind.STATE for hit in done.hits())


def common_runs(other: Place) -> int:
    """How many of the library runs around this context were around another place, too."""
    here = place.get()
    around = min(len(here), len(other))
    return next((depth for depth in range(around) if here[depth] != other[depth]), around)


waiting: deque[Retrieval] = deque(maxlen=_SEARCHES)
"""Searches outside a trace that no answer of their turn has followed, oldest first. Each access is atomic."""


def unanswered() -> list[Retrieval]:
    """The searches of the last minute outside a trace whose hits no model call was given, oldest first."""
    since = perf_counter() - ACTIVE_SECONDS
    return [search for search in list(waiting) if search.ended > since and not search.given_to]


@after_fork
def _after_fork() -> None:
    waiting.clear()
