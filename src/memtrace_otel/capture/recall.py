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

_TRACES = 256
_RECALLED = 1024
_MIN_TEXT = 4
_SPACES = re.compile(r"\s+")


@dataclass(frozen=True, slots=True)
class Recalled:
    """One variable that a prompt may contain: its identity, its text and the retrieval that returned it."""

    ref: str
    origin: str
    text: str
    scope: str = ""
    retrieved_by: str = ""


@dataclass(slots=True)
class Turn:
    """Queries, retrieved versions and answers of one trace, newest last; `fruitless` retrievals returned nothing."""

    queries: dict[str, Recalled] = field(default_factory=dict[str, Recalled])
    hits: dict[tuple[str, str], Recalled] = field(default_factory=dict[tuple[str, str], Recalled])
    answers: list[Recalled] = field(default_factory=list[Recalled])
    fruitless: dict[str, None] = field(default_factory=dict[str, None])


_lock = threading.Lock()
_turns: OrderedDict[str, Turn] = OrderedDict()
_recent: ContextVar[Turn | None] = ContextVar("memtrace_recent_turn", default=None)


def turn_of(trace_id: str) -> Turn:
    """The turn of a trace, made when new; it becomes the context's most recent one."""
    with _lock:
        turn = _turns.get(trace_id)
        if turn is None:
            turn = _turns[trace_id] = Turn()
            while len(_turns) > _TRACES:
                _turns.popitem(last=False)
    _recent.set(turn)
    return turn


def recall(trace_id: str) -> Turn | None:
    """The turn a model call in `trace_id` belongs to: that trace's own, else the context's most recent one."""
    with _lock:
        turn = _turns.get(trace_id)
    return turn or _recent.get()


def remember_retrieval(trace_id: str, origin: str, query: Recalled | None, hits: Iterable[Recalled]) -> None:
    """Note what a retrieval was asked and what it returned."""
    turn = turn_of(trace_id)
    if query is not None:
        turn.queries[query.ref] = query
    found = list(hits)
    for hit in found:
        if len(turn.hits) < _RECALLED:
            turn.hits[hit.ref, hit.retrieved_by] = hit
    if not found and len(turn.fruitless) < _RECALLED:
        turn.fruitless[origin] = None


def found_in(prompt: str, candidates: Iterable[Recalled]) -> list[Recalled]:
    """Return the candidates whose text occurs in `prompt`, in the order of their occurrence.

    White space is folded. An occurrence inside a longer candidate's occurrence does not count: 'likes tea' is not
    found in 'likes tea with milk' when both were retrieved. Texts under four characters match by chance: left out.
    """
    folded = _SPACES.sub(" ", prompt)
    claimed: list[tuple[int, int, str]] = []
    found: list[tuple[int, Recalled]] = []
    texts = [(_SPACES.sub(" ", candidate.text).strip(), candidate) for candidate in candidates]
    for text, candidate in sorted(texts, key=lambda item: -len(item[0])):
        if len(text) < _MIN_TEXT:
            continue
        at = folded.find(text)
        while at >= 0 and any(start <= at and at + len(text) <= end and text != own for start, end, own in claimed):
            at = folded.find(text, at + 1)
        if at >= 0:
            claimed.append((at, at + len(text), text))
            found.append((at, candidate))
    return [candidate for _, candidate in sorted(found, key=lambda item: item[0])]


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
