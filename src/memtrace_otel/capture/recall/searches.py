"""One search of a turn, what it found, and the searches that wait for their answer."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterable
from sys import getsizeof
from typing import NamedTuple

from memtrace_otel.capture.layout import Read
from memtrace_otel.capture.recall.text import fold
from memtrace_otel.model import ref_kind
from memtrace_otel.semconv import RefKind, Role

ENTRY_BYTES = 256  # of an entry, its text aside
_SEARCHES = 256
_GIVEN = 64  # a search at the start of a long program may be in every prompt after it

Place = tuple[object, ...]
"""A run in the tree of a library's runs: ids from the outermost run to it."""


class Recalled(NamedTuple):
    """One variable that a prompt may contain: its identity and text; of a hit, the retrieval that returned it."""

    ref: str
    origin: str
    text: str
    scope: str = ""
    retrieved_by: str = ""

    def size(self) -> int:
        """Bytes in memory, about."""
        return ENTRY_BYTES + getsizeof(self.text)


class Retrieval(NamedTuple):
    """One search: what its operation read, kept as it is until a prompt has to be matched, and where it was made."""

    origin: str
    scope: str
    read: list[Read]
    place: Place
    bytes: int
    """In memory, about."""
    ended: float
    """When, in seconds of `perf_counter`."""
    context: str
    """Ref of what it made for the answer."""
    given_to: dict[str | int, None]
    """Who was given what it found lately: traces of answers, and turns of those outside any span, newest last."""
    certain: bool = True
    """Whether it knows, of every record that it read, who wrote it."""

    def give_to(self, asker: str | int) -> None:
        """Note who was given what it found; one caller at a time."""
        self.given_to.pop(asker, None)
        self.given_to[asker] = None
        if len(self.given_to) > _GIVEN:
            del self.given_to[next(iter(self.given_to))]

    def query(self) -> Recalled | None:
        """What was asked, None when the operation did not say."""
        return next(reversed(self.queries()), None)

    def queries(self) -> list[Recalled]:
        """Everything that was asked, the words that were searched for last."""
        return self._playing(Role.QUERY)

    def hits(self) -> list[Recalled]:
        """What was returned."""
        return self._playing(Role.HIT)

    def of_history(self) -> bool:
        """Whether a conversation's own messages were read, in one of its runs."""
        return bool(self.place) and any(ref_kind(hit.ref) == RefKind.STATE for hit in self.hits())

    def is_like(self, other: Retrieval) -> bool:
        """Whether some prompt may hold what either found."""
        if not self._rivals(other):
            return False
        hits = other.hits()
        return any(self.fits_too([hit], other) for hit in hits) if hits else self.fits_too([], other)

    def fits_too(self, found: Collection[Recalled], other: Retrieval) -> bool:
        """Whether a prompt that holds these hits of the other search may as well hold what this one found for the same
        question: the same words in other records of another owner, or nothing."""
        if not self._rivals(other):
            return False
        hits = self.hits()
        if not found:
            return not hits
        return texts_of(found) <= texts_of(hits) and not {hit.ref for hit in hits} & {hit.ref for hit in found}

    def size(self) -> int:
        """Bytes in memory, about."""
        return self.bytes

    def _rivals(self, other: Retrieval) -> bool:
        """Whether both asked the same, for different owners."""
        return self.scope != other.scope and _question(self) == _question(other)

    def _playing(self, part: str) -> list[Recalled]:
        return [
            Recalled(ref, origin, text, self.scope, self.origin)
            for ref, role, origin, text, _ in self.read
            if role == part
        ]


unanswered: deque[Retrieval] = deque(maxlen=_SEARCHES)
"""Searches outside any span that no answer has followed in their turn, oldest first; each access is atomic: no lock."""


def waiting() -> list[Retrieval]:
    """The unanswered searches of which no model call was given anything, oldest first."""
    return [done for done in list(unanswered) if not done.given_to]


def texts_of(hits: Iterable[Recalled]) -> set[str]:
    """The different texts of hits."""
    return {fold(hit.text) for hit in hits}


def _question(done: Retrieval) -> str:
    query = done.query()
    return query.ref if query else ""
