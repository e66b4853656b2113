"""What the current turn has retrieved, asked and answered, by content: how a prompt is matched to memory versions.

An application hands memories to a model as text, so identity is lost at that point. Within one trace (or, for programs
without a span around a turn, within one execution context) the texts returned by retrievals are remembered and looked
for in the prompt. Contents stay in memory, whatever the capture switch says; they never reach a span from here.
"""

from __future__ import annotations

import os
import re
import threading
from collections import OrderedDict
from collections.abc import Iterable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import NamedTuple, TypeVar

_TRACES = 256
_HITS = 1024
_FEW = 64  # queries, fruitless searches and answers kept of one turn
_MIN_TEXT = 4
_OCCURRENCES = 64
_PROMPT = 1_000_000  # characters of a prompt that are searched
_SPACES = re.compile(r"\s+")
K = TypeVar("K")
V = TypeVar("V")


class Recalled(NamedTuple):
    """One variable that a prompt may contain: its identity and text; of a hit, the retrieval that returned it; of an
    answer, the question it was given to."""

    ref: str
    origin: str
    text: str
    scope: str = ""
    retrieved_by: str = ""
    question: str = ""


@dataclass(slots=True)
class Turn:
    """The queries, retrieved versions and answers of one trace, oldest first; the oldest are forgotten first.

    `hits` maps a retrieval to what it returned, `fruitless` one that returned nothing to the ref of its query.
    """

    queries: OrderedDict[str, Recalled] = field(default_factory=OrderedDict[str, Recalled])
    hits: OrderedDict[str, list[Recalled]] = field(default_factory=OrderedDict[str, list[Recalled]])
    fruitless: OrderedDict[str, str] = field(default_factory=OrderedDict[str, str])
    answers: OrderedDict[str, Recalled] = field(default_factory=OrderedDict[str, Recalled])
    held: int = 0

    def retrieved(self, origin: str, query: Recalled | None, hits: list[Recalled], count: int) -> None:
        """Note what a retrieval was asked and those of its `count` hits that have a text."""
        with _lock:
            if query is not None:
                _put(self.queries, query.ref, query, _FEW)
                if not count:
                    _put(self.fruitless, origin, query.ref, _FEW)
            if hits:
                self.held += len(hits[:_HITS]) - len(self.hits.pop(origin, ()))
                self.hits[origin] = hits[:_HITS]
                while self.held > _HITS:
                    self.held -= len(self.hits.popitem(last=False)[1])

    def answered(self, answer: Recalled) -> None:
        """Note an answer."""
        with _lock:
            _put(self.answers, answer.ref, answer, _FEW)

    def newest_answers(self) -> list[Recalled]:
        """The answers given so far, newest first."""
        with _lock:
            return list(reversed(self.answers.values()))

    def queries_in(self, prompt: str) -> list[Recalled]:
        """The queries that the prompt holds."""
        with _lock:
            queries = list(self.queries.values())
        return found_in(prompt, queries)

    def hits_in(self, prompt: str) -> list[Recalled]:
        """The retrieved versions that the prompt holds."""
        with _lock:
            hits = [hit for found in self.hits.values() for hit in found]
        return found_in(prompt, hits)

    def fruitless_for(self, queries: Iterable[Recalled]) -> list[str]:
        """The retrievals that returned nothing for one of these queries: an empty result is in every prompt."""
        refs = {query.ref for query in queries}
        with _lock:
            return [origin for origin, query in self.fruitless.items() if query in refs]


_lock = threading.Lock()
_turns: OrderedDict[str, Turn] = OrderedDict()
_recent: ContextVar[Turn | None] = ContextVar("memtrace_recent_turn", default=None)


def turn_of(trace_id: str) -> Turn:
    """The turn of a trace, made when new; it becomes the context's most recent one."""
    with _lock:
        turn = _turns.get(trace_id)
        if turn is None:
            turn = Turn()
        _put(_turns, trace_id, turn, _TRACES)
    _recent.set(turn)
    return turn


def recall(trace_id: str) -> Turn | None:
    """The turn a model call belongs to: its trace's, or outside any span (`trace_id` '') the context's most recent."""
    if not trace_id:
        return _recent.get()
    with _lock:
        return _turns.get(trace_id)


def found_in(prompt: str, candidates: Iterable[Recalled]) -> list[Recalled]:
    """Return the candidates whose text occurs in `prompt`, in the order of their occurrence.

    White space is folded. An occurrence inside a longer candidate's occurrence does not count: 'likes tea' is not
    found in 'likes tea with milk' when both were retrieved. Texts under four characters match by chance: left out.
    """
    folded = _SPACES.sub(" ", prompt[:_PROMPT])
    same: dict[str, list[Recalled]] = {}  # a record that several searches returned is looked for once
    for candidate in candidates:
        same.setdefault(_SPACES.sub(" ", candidate.text).strip(), []).append(candidate)
    claimed = bytearray(len(folded))
    found: list[tuple[int, Recalled]] = []
    for text in sorted(same, key=len, reverse=True):
        if len(text) < _MIN_TEXT:
            continue
        places = [at for at in _occurrences(folded, text) if not claimed[at]]  # longer ones have claimed all of theirs
        for at in places:
            claimed[at : at + len(text)] = b"\x01" * len(text)
        if places:
            found.extend((places[0], candidate) for candidate in same[text])
    return [candidate for _, candidate in sorted(found, key=lambda item: item[0])]


def quotes(prompt: str, text: str) -> bool:
    """Tell whether `prompt` holds `text` as whole words."""
    text = text.strip()
    return bool(text) and any(
        not prompt[max(at - 1, 0) : at].isalnum() and not prompt[at + len(text) : at + len(text) + 1].isalnum()
        for at in _occurrences(prompt, text)
    )


def _occurrences(text: str, part: str) -> list[int]:
    places: list[int] = []
    at = text.find(part)
    while at >= 0 and len(places) < _OCCURRENCES:
        places.append(at)
        at = text.find(part, at + len(part))
    return places


def _put(entries: OrderedDict[K, V], key: K, value: V, most: int) -> None:
    """Make an entry the newest and forget the oldest past `most`."""
    entries[key] = value
    entries.move_to_end(key)
    if len(entries) > most:
        entries.popitem(last=False)


def forget() -> None:
    """Drop every turn."""
    global _lock
    _lock = threading.Lock()
    _turns.clear()
    _recent.set(None)


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # the parent may have held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
