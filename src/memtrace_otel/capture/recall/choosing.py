"""Which of several searches a prompt was given: what is in it, and whose it is when more than one search fits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from contextvars import ContextVar
from time import perf_counter

from memtrace_otel.capture.recall.searches import Place, Recalled, Retrieval, waiting
from memtrace_otel.capture.recall.text import fold, occurrences, words_of

_LATELY_SECONDS = 60.0
MIN_TEXT = 4
PROMPT = 1_000_000  # characters of a prompt that are searched
WORK = 1 << 26  # characters of a prompt, times the texts looked for in it: at most a tenth of a second

place: ContextVar[Place] = ContextVar("memtrace_place", default=())
"""The run that this context is in, for libraries that tell."""
searched_here: ContextVar[tuple[str, ...]] = ContextVar("memtrace_searched_here", default=())
"""Origins of the searches that this context has made lately."""
answered_here: ContextVar[tuple[str, ...]] = ContextVar("memtrace_answered_here", default=())
"""Origins of the answers that this context has given lately."""


def found_in(prompt: str, candidates: Iterable[Recalled]) -> tuple[list[Recalled], bool]:
    """Return the candidates whose text occurs in the folded prompt, in the order of their occurrence, and whether all
    of them were looked for: of too many for a long prompt, only the newest (last) ones are.

    White space is folded. An occurrence inside a longer candidate's occurrence does not count: 'likes tea' is not
    found in 'likes tea with milk' when both were retrieved. Texts under four characters match by chance: left out.
    """
    same: dict[str, list[Recalled]] = {}  # a record that several searches returned is looked for once
    for candidate in candidates:
        text = fold(candidate.text)
        same[text] = [*same.pop(text, ()), candidate]  # where it came last
    places, whole = places_in(prompt, same)
    found = sorted(places, key=lambda text: places[text][0])
    return [candidate for text in found for candidate in same[text]], whole


def places_in(prompt: str, texts: Iterable[str]) -> tuple[dict[str, list[int]], bool]:
    """Where each of these folded texts stands in the folded prompt by itself, and whether all were looked for."""
    possible = [text for text in texts if MIN_TEXT <= len(text) <= len(prompt)]
    affordable = max(1, WORK // max(1, len(prompt)))
    claimed = bytearray(len(prompt))
    found: dict[str, list[int]] = {}
    for text in sorted(possible[-affordable:], key=len, reverse=True):
        places = [at for at in occurrences(prompt, text) if not claimed[at]]  # longer ones have claimed all of theirs
        for at in places:
            claimed[at : at + len(text)] = b"\x01" * len(text)
        if places:
            found[text] = places
    return found, len(possible) <= affordable


def of_one_search_each(
    hits: list[Recalled], searched: list[Retrieval], wanted: set[str], owners: set[str]
) -> list[Recalled]:
    """Several searches of a turn may have returned an equal text; the prompt holds what one of them returned.

    That is one for the question of the prompt (`wanted`), of an owner that was searched for this call (`owners`), of
    the run that is nearest, of this execution context, that returned most texts of the prompt, and the newest.
    """
    here = searched_here.get()
    returned = Counter(search for search, _ in {(hit.retrieved_by, fold(hit.text)) for hit in hits})
    rank = {
        done.origin: (
            *(done.origin in wanted, done.scope in owners, nearness(done)),
            *(done.origin in here, returned[done.origin], at),
        )
        for at, done in enumerate(searched)
    }
    chosen: dict[str, str] = {}
    for hit in hits:
        text = fold(hit.text)
        if text not in chosen or rank[hit.retrieved_by] > rank[chosen[text]]:
            chosen[text] = hit.retrieved_by
    return [hit for hit in hits if chosen[fold(hit.text)] == hit.retrieved_by]


def wanted(searched: Iterable[Retrieval], question: str, prompt: str) -> set[str]:
    """The searches for this query of the prompt; without one those of whose words the prompt holds most."""
    asked = {done.origin: query for done in searched if (query := done.query())}
    if question:
        return {origin for origin, query in asked.items() if query.ref == question}
    words = words_of(prompt)
    shares = {origin: len(own & words) / len(own) for origin, q in asked.items() if (own := words_of(q.text))}
    most = max(shares.values(), default=0.0)
    return {origin for origin, share in shares.items() if share == most > 0}


def asking(refs: Collection[str], searched: Iterable[Retrieval]) -> list[Retrieval]:
    """The searches for one of these queries."""
    return [done for done in searched if (query := done.query()) and query.ref in refs]


def nearness(done: Retrieval) -> int:
    """How many of the runs around this context were around a search, too."""
    here = place.get()
    around = min(len(here), len(done.place))
    return next((depth for depth in range(around) if here[depth] != done.place[depth]), around)


def of_one_call(searched: list[Retrieval]) -> list[Retrieval]:
    """Those that no model call was given; without any, those that the same was given as the newest."""
    fresh = [done for done in searched if not done.given_to]
    return fresh or [done for done in searched if done.given_to.keys() & searched[-1].given_to.keys()]


def as_close(done: Retrieval, searched: Iterable[Retrieval]) -> list[Retrieval]:
    """The searches of the last minute that wait for an answer still and are as near to this context as `done`."""
    here, lately = searched_here.get(), perf_counter() - _LATELY_SECONDS
    unanswered = {search.origin for search in waiting()}
    return [
        other
        for other in searched
        if other.origin in unanswered
        and other.ended > lately
        and nearness(other) >= nearness(done)
        and (other.origin in here) >= (done.origin in here)
    ]
