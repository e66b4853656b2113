"""What the current turn has retrieved, asked and answered, by content: how a prompt is matched to memory versions.

An application hands memories to a model as text, so identity is lost at that point. Within one trace (or, for programs
without a span around a turn, within one execution context) the texts returned by retrievals are remembered and looked
for in the prompt. Contents stay in memory, whatever the capture switch says; they never reach a span from here.
"""

from __future__ import annotations

import json
import os
import re
import threading
from collections import OrderedDict
from collections.abc import Iterable
from contextvars import ContextVar
from typing import NamedTuple

from memtrace_otel.capture.layout import Read
from memtrace_otel.semconv import Role

_TRACES = 256
_ENTRIES = 1024  # queries and hits kept of one turn
_RETRIEVALS = 256
_ANSWERS = 64
_MIN_TEXT = 4
_OCCURRENCES = 64
_PROMPT = 1_000_000  # characters of a prompt that are searched
_SPACES = re.compile(r"\s+")


class Recalled(NamedTuple):
    """One variable that a prompt may contain: its identity and text; of a hit, the retrieval that returned it; of an
    answer, the question it was given to."""

    ref: str
    origin: str
    text: str
    scope: str = ""
    retrieved_by: str = ""
    question: str = ""


class Retrieval(NamedTuple):
    """One search: what its operation read, kept as it is until a prompt has to be matched."""

    origin: str
    scope: str
    read: list[Read]

    def query(self) -> Recalled | None:
        """What was asked, None when the operation did not say."""
        return next(reversed(self._playing(Role.QUERY)), None)

    def hits(self) -> list[Recalled]:
        """What was returned."""
        return self._playing(Role.HIT)

    def _playing(self, part: str) -> list[Recalled]:
        return [
            Recalled(ref, origin, text, self.scope, self.origin)
            for ref, role, origin, text, _ in self.read
            if role == part
        ]


class Turn:
    """The retrievals, answers and tool calls of one trace, oldest first; the oldest are forgotten first."""

    __slots__ = ("_answers", "_calls", "_entries", "_retrievals")

    def __init__(self) -> None:
        self._retrievals: list[Retrieval] = []
        self._answers: list[Recalled] = []
        self._calls: list[Recalled] = []
        self._entries = 0  # of all retrievals

    def retrieved(self, origin: str, scope: str, read: list[Read]) -> None:
        """Note what the operation of a retrieval read: its query and its hits."""
        read = read[:_ENTRIES]
        with _lock:
            self._retrievals.append(Retrieval(origin, scope, read))
            self._entries += len(read)
            while self._entries > _ENTRIES or len(self._retrievals) > _RETRIEVALS:
                self._entries -= len(self._retrievals.pop(0).read)

    def answered(self, answer: Recalled) -> None:
        """Note an answer."""
        with _lock:
            self._answers.append(answer)
            del self._answers[:-_ANSWERS]

    def called(self, completion: Recalled) -> None:
        """Note a reply that calls tools."""
        with _lock:
            self._calls.append(completion)
            del self._calls[:-_ANSWERS]

    def call_with(self, text: str) -> Recalled | None:
        """The newest reply that calls a tool with this text in its arguments."""
        forms = [text]
        for _ in range(2):  # arguments are JSON, in a reply that is JSON
            forms.append(json.dumps(forms[-1], ensure_ascii=False)[1:-1])
        with _lock:
            calls = self._calls[::-1]
        long_enough = len(text) >= _MIN_TEXT
        return next((call for call in calls if long_enough and any(form in call.text for form in forms)), None)

    def retrievals(self) -> list[Retrieval]:
        """What was searched so far, oldest first."""
        with _lock:
            return list(self._retrievals)

    def newest_answers(self) -> list[Recalled]:
        """The answers given so far, newest first."""
        with _lock:
            return self._answers[::-1]

    def queries_in(self, prompt: str) -> list[Recalled]:
        """The queries that the prompt holds."""
        queries = {query.ref: query for done in self.retrievals() if (query := done.query())}
        return found_in(prompt, queries.values())

    def hits_in(self, prompt: str) -> list[Recalled]:
        """The retrieved versions that the prompt holds."""
        return found_in(prompt, [hit for done in self.retrievals() for hit in done.hits()])

    def fruitless_for(self, queries: Iterable[Recalled]) -> list[str]:
        """The retrievals that returned nothing for one of these queries: an empty result is in every prompt."""
        refs = {query.ref for query in queries}
        return [
            done.origin
            for done in self.retrievals()
            if not done.hits() and (query := done.query()) and query.ref in refs
        ]


_lock = threading.Lock()
_turns: OrderedDict[str, Turn] = OrderedDict()
_recent: ContextVar[Turn | None] = ContextVar("memtrace_recent_turn", default=None)
_shared: ContextVar[Turn | None] = ContextVar("memtrace_shared_turn", default=None)


def share_turn() -> None:
    """Begin a turn of this context and of the copies made of it: for libraries that run the parts of a turn in copies,
    when no span is around the turn."""
    turn = Turn()
    _recent.set(turn)
    _shared.set(turn)


def turn_of(trace_id: str, *, alone: bool = False) -> Turn:
    """The turn of a trace, made when new; it becomes the context's most recent one. A trace that is nothing but one
    operation (`alone`) belongs to the context's shared turn, if there is one."""
    with _lock:
        turn = _turns.get(trace_id)
        if turn is not None:
            _turns.move_to_end(trace_id)
        else:
            turn = _turns[trace_id] = (_shared.get() if alone else None) or Turn()
            if len(_turns) > _TRACES:
                _turns.popitem(last=False)
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


def forget() -> None:
    """Drop every turn."""
    global _lock
    _lock = threading.Lock()
    _turns.clear()
    _recent.set(None)
    _shared.set(None)


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # the parent may have held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
