"""Searches that no answer has followed in their turn: one outside any turn may be theirs, but nothing joins the two.

That is so in a plain asyncio task or thread without a span around the turn: neither trace nor execution context joins
what was searched there with what is answered here. What the answer was given tells whether they may belong together:
it quotes what was searched for or found, or the user says most of the words of the query. A program that searches in
other words than the user's and hands over nothing of what it found, or that in words of its own, is not recognised.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from itertools import accumulate, combinations
from sys import getsizeof
from time import perf_counter

from memtrace_otel.capture.fork import after_fork
from memtrace_otel.capture.layout import Read
from memtrace_otel.capture.recall.choosing import MIN_TEXT, PROMPT, WORK
from memtrace_otel.capture.recall.searches import Retrieval, texts_of, unanswered, waiting
from memtrace_otel.capture.recall.text import fold, words_of
from memtrace_otel.capture.recall.turn import Turn
from memtrace_otel.semconv import Role

_SECONDS = 60.0  # an answer is not long in coming
_BYTES = 64 << 10  # of the texts of one search
_MOST = 0.5  # of the words of a query
_SAID = frozenset({Role.QUERY, Role.MESSAGE, Role.HISTORY})


def searched(done: Retrieval) -> None:
    """Note that a search has ended."""
    unanswered.append(done if done.bytes <= _BYTES else _cut(done))
    _forget_until(done.ended - _SECONDS)


def _cut(done: Retrieval) -> Retrieval:
    """As much of it as may be kept; its `bytes` still tell that this is not all."""
    sizes = accumulate(getsizeof(entry[3]) for entry in done.read)
    return done._replace(read=[one for one, size in zip(done.read, sizes, strict=True) if size <= _BYTES])


def answered(turn: Turn | None) -> bool:
    """Note that an answer is given in `turn`; return whether one may be of a search elsewhere, or of any of several
    that it has made for different owners: only what it reads can tell."""
    own = {search.origin for search in turn.retrievals()} if turn else set[str]()
    joined = turn is not None and bool(own) and turn.joined
    _forget_until(perf_counter() - _SECONDS)
    waits = waiting()
    mine = [search for search in waits if search.origin in own]
    if not joined and any(one.is_like(other) for one, other in combinations(mine, 2)):
        return True
    for search in mine:
        _remove(search)  # unless another answer of the turn was first
    return len(waits) > len(mine) and not mine and not joined


def may_be_answered(read: Sequence[Read], started: float) -> bool:
    """Whether a model call that started then (`perf_counter`) and was given this may have read one of the searches;
    also when nothing tells."""
    given = " ".join(text for _, _, _, text, _ in read)
    searches = [search for search in waiting() if search.ended <= started]
    if not given.strip() or any(search.bytes > _BYTES or len(given) > PROMPT for search in searches):
        return True
    prompt = fold(given)
    words = words_of(" ".join(text for _, role, _, text, _ in read if role in _SAID))
    if any(_may_be_asked(search, words) for search in searches):
        return True
    texts = texts_of(one for search in searches for one in (*search.queries(), *search.hits()))
    looked_for = [text for text in texts if MIN_TEXT <= len(text) <= len(prompt)]
    return len(looked_for) * len(prompt) > WORK or any(text in prompt for text in looked_for)


def _may_be_asked(search: Retrieval, words: frozenset[str]) -> bool:
    """Whether the user said most of the words of a query; also when the search says nothing of itself."""
    asked = [query.text for query in search.queries() if query.text]
    return not (asked or any(hit.text for hit in search.hits())) or any(_mostly_in(words, query) for query in asked)


def _mostly_in(words: frozenset[str], query: str) -> bool:
    wanted = words_of(query)
    return len(wanted & words) >= _MOST * len(wanted)


def _forget_until(moment: float) -> None:
    try:
        while (first := unanswered[0]).ended < moment:
            _remove(first)
    except IndexError:  # none is left
        pass


def _remove(search: Retrieval) -> None:
    with suppress(ValueError, IndexError):
        unanswered.remove(search)


@after_fork
def forget() -> None:
    """Drop everything."""
    unanswered.clear()
