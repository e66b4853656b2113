"""What the current turn has retrieved, asked and answered, by content: how a prompt is matched to memory versions.

An application hands memories to a model as text, so identity is lost at that point. Within one trace (or, for programs
without a span around a turn, within one execution context) the texts returned by retrievals are remembered and looked
for in the prompt. Contents stay in memory, whatever the capture switch says; they never reach a span from here.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from contextvars import ContextVar
from itertools import count
from time import perf_counter
from typing import NamedTuple, TypeVar

from memtrace_otel.capture.guard import note_drop
from memtrace_otel.capture.layout import Read
from memtrace_otel.capture.recall.answers import Answer, lately
from memtrace_otel.capture.recall.choosing import (
    MIN_TEXT,
    PROMPT,
    answered_here,
    as_close,
    asking,
    found_in,
    nearness,
    of_one_call,
    of_one_search_each,
    place,
    searched_here,
    wanted,
)
from memtrace_otel.capture.recall.kept import kept
from memtrace_otel.capture.recall.searches import ENTRY_BYTES, Recalled, Retrieval, waiting
from memtrace_otel.capture.recall.text import fold

_TURN_BYTES = 8 << 20
_ENTRIES = 1024  # queries and hits kept of one turn
_RETRIEVALS = 256
_ANSWERS = 1024
_NEWEST = 64  # of the answers: those that are judged, stored or summarised
_CALLS = 64
_HERE = 16  # searches that an execution context remembers as its own
_ANSWERED_HERE = 256

Reply = TypeVar("Reply", Answer, Recalled)


class InPrompt(NamedTuple):
    """What of a turn a prompt holds; the question that it says last is the last one. `whole` is False when there was
    too much of it to look for everything. `certain` is True when no hit had to be chosen: the prompt says what was
    searched for, and no other version has the same words."""

    queries: list[Recalled]
    hits: list[Recalled]
    whole: bool
    certain: bool


class Turn:
    """The retrievals, answers and tool calls of one trace, oldest first; the oldest are forgotten first.

    `before`, `answered`: what the execution context had searched and answered when the turn began; a prompt may hold
    that, too. `trace_id`: the trace, also where it is but one operation that belongs to its context, '' for none.
    """

    __slots__ = (
        *("__weakref__", "_answers", "_before", "_calls", "_entries", "_number", "_retrievals"),
        *("forgot_answers", "of_trace", "size", "trace_id", "used"),
    )

    def __init__(self, before: tuple[Retrieval, ...] = (), trace_id: str = "") -> None:
        self._number = next(_numbers)  # an `id` would be that of a later turn, too
        self._before, self.trace_id = before, trace_id
        self._retrievals: list[Retrieval] = []
        self._answers: list[Answer] = []
        self._calls: list[Recalled] = []
        self._entries = 0  # of its own retrievals
        self.of_trace = False
        """Whether it is the turn of a trace, not only of an execution context."""
        self.size = 0
        """Bytes of its own in memory, about."""
        self.forgot_answers = False
        """Whether there were more than it knows."""
        self.used = 0.0
        """When something was added last."""

    def retrieved(
        self, origin: str, scope: str, read: list[Read], context: str = "", *, certain: bool = True
    ) -> Retrieval:
        """Note what the operation of a retrieval read, its query and its hits, and the ref of what it made of them;
        `certain`: it knows who wrote each of them."""
        if len(read) > _ENTRIES:
            read = read[:_ENTRIES]
        size = ENTRY_BYTES * (len(read) + 1) + sum([entry[3].__sizeof__() for entry in read])  # getsizeof takes longer
        done = Retrieval(origin, scope, read, place.get(), size, perf_counter(), context, {}, certain)
        searched_here.set((*searched_here.get()[1 - _HERE :], origin))
        with kept.lock:
            self._retrievals.append(done)
            self._entries += len(done.read)
            self._grew(size, done.ended)
            while self._entries > _ENTRIES or len(self._retrievals) > _RETRIEVALS:
                self._forget_first(self._retrievals)
        return done

    def newest_retrievals(self) -> tuple[Retrieval, ...]:
        """What was searched lately, oldest first."""
        own = self._retrievals[-_HERE:]
        return (*self._before[max(0, len(self._before) + len(own) - _HERE) :], *own)

    def answered(self, answer: Answer) -> None:
        """Note an answer."""
        if answer.origin not in answered_here.get():
            answered_here.set((*answered_here.get()[1 - _ANSWERED_HERE :], answer.origin))
        if answer.telling:
            lately.add(answer)
        self._said(self._answers, answer, _ANSWERS)

    def called(self, completion: Recalled) -> None:
        """Note a reply that calls tools."""
        self._said(self._calls, completion, _CALLS)

    def call_with(self, text: str) -> Recalled | None:
        """The newest reply that calls a tool with this text in its arguments."""
        forms = [text]
        for _ in range(2):  # arguments are JSON, in a reply that is JSON
            forms.append(json.dumps(forms[-1], ensure_ascii=False)[1:-1])
        with kept.lock:
            calls = self._calls[::-1]
        long_enough = len(text) >= MIN_TEXT
        return next((call for call in calls if long_enough and any(form in call.text for form in forms)), None)

    def retrievals(self) -> list[Retrieval]:
        """What was searched so far, oldest first: before the turn began, no history of another conversation."""
        here = place.get()[:1]
        with kept.lock:
            return [
                *[done for done in self._before if not done.of_history() or done.place[:1] == here],
                *self._retrievals,
            ]

    def newest_answers(self) -> list[Answer]:
        """The answers given last, newest first."""
        with kept.lock:
            return self._answers[: -_NEWEST - 1 : -1]

    def telling_answers(self) -> list[Answer]:
        """The answers that a prompt makes known, newest first. Only a trace tells that there are no others: else also
        those that were given anywhere lately."""
        with kept.lock:
            own = {answer.origin: answer for answer in self._answers[::-1] if answer.telling}
        return list((own if self.of_trace else own | {one.origin: one for one in lately.newest_first()}).values())

    def found_in(self, prompt: str, trace_id: str = "") -> InPrompt:
        """The queries and retrieved versions that a prompt holds, of a model call in this trace ('': outside any).

        What a call of another trace or turn was given is not found again, unless the prompt asks for it and it is of
        an owner that was searched for this call: the words of one user's memory may be in another user's question, and
        the questions of both may be equal. Where all words are equal, and nothing tells whose they are, none is found.
        """
        searched, folded, asker = self.retrievals(), fold(prompt[:PROMPT]), trace_id or self._number
        asked = {query.ref: query for done in searched if (query := done.query())}
        queries, all_queries = found_in(folded, asked.values())
        queries.sort(key=lambda query: folded.rfind(fold(query.text)))  # a history says some twice
        question = queries[-1].ref if queries else ""
        own = [done for done in searched if not done.given_to or asker in done.given_to]
        of_question = wanted(searched if queries else own, question, folded)
        owners = {done.scope for done in own if done.origin in of_question}
        again = asking({query.ref for query in queries}, searched)
        kept = {done.origin for done in own} | {d.origin for d in again if not owners or d.scope in owners}
        searched = [done for done in searched if done.origin in kept]
        hits, all_hits = found_in(folded, [hit for done in searched for hit in done.hits()])
        chosen = of_one_search_each(hits, searched, of_question, owners)
        taken: defaultdict[str, list[Recalled]] = defaultdict(list)
        for hit in chosen:
            taken[hit.retrieved_by].append(hit)
        sure = {d.origin for d in searched if d.origin in taken and self._is_sure(d, taken[d.origin], trace_id)}
        certain = bool(queries) and {(hit.ref, hit.origin) for hit in hits} == {(hit.ref, hit.origin) for hit in chosen}
        chosen = [hit for hit in chosen if hit.retrieved_by in sure]
        return InPrompt(queries, chosen, all_queries and all_hits, certain)

    def gave(self, hits: Iterable[Recalled], trace_id: str = "") -> None:
        """Note that a model call in this trace was given these hits."""
        searches = {hit.retrieved_by for hit in hits}
        given = [done for done in self.retrievals() if done.origin in searches]
        with kept.lock:
            for done in given:
                done.give_to(trace_id or self._number)

    def fruitless_for(self, queries: Iterable[Recalled]) -> list[str]:
        """Give a model call the retrievals that returned nothing for one of these queries: an empty result is in every
        prompt. Those of the turn before, and of a run beside the one that asks, count where there are no others."""
        refs = {query.ref for query in queries}
        with kept.lock:
            own, before = list(self._retrievals), list(self._before)
        found = asking(refs, own) or of_one_call(asking(refs, before))
        nearest = max(map(nearness, found), default=0)
        found = [done for done in found if not done.hits() and nearness(done) in (len(done.place), nearest)]
        sure = [done for done in found if self._is_sure(done, [])]
        with kept.lock:
            for done in sure:
                done.give_to(self._number)
        return [done.origin for done in sure]

    @property
    def joined(self) -> bool:
        """Whether a trace, or a library's run around this context, tells that what was searched in it is its own."""
        return self.of_trace or shared.get() is self

    def _is_sure(self, done: Retrieval, hits: list[Recalled], trace_id: str = "") -> bool:
        """Whether no other owner's search fits a prompt with these hits of `done` as well: one that only its age tells
        from it, or when an answer was given it before, a newer one that waits for its own in another context."""
        if trace_id in done.given_to or (self.joined and done in self._retrievals):
            return True
        reach = self.retrievals()
        if done.given_to:
            known = {near.origin for near in reach}
            others = [other for other in waiting() if other.origin not in known and other.ended > done.ended]
        else:
            others = as_close(done, reach)
        return not any(other.fits_too(hits, done) for other in others)

    def kept_alive(self) -> int:
        """Bytes in memory that live as long as the turn, about."""
        return self.size + sum(known.size() for known in self._before)

    def forget(self) -> None:
        """Drop everything."""
        self._before = ()
        for entries in (self._retrievals, self._answers, self._calls):
            entries.clear()
        self._entries = self.size = 0

    def _said(self, replies: list[Reply], new: Reply, most: int) -> None:
        with kept.lock:
            if any(said.ref == new.ref and said.origin == new.origin for said in replies[-_NEWEST:]):
                return  # who made it has told more of it
            replies.append(new)
            self._grew(new.size(), perf_counter())
            if len(replies) > most:
                self._forget_first(replies)

    def _grew(self, size: int, now: float) -> None:
        """Count what was added and make room for it; the lock is held."""
        self.used = now
        kept.count(self, size)
        while self.size > _TURN_BYTES:
            self._forget_first(self._retrievals or self._calls or self._answers)
            note_drop("recall")
        kept.make_room()

    def _forget_first(self, entries: list[Retrieval] | list[Recalled] | list[Answer] | list[Reply]) -> None:
        first = entries.pop(0)
        self.size -= first.size()
        if isinstance(first, Retrieval):
            self._entries -= len(first.read)
        elif isinstance(first, Answer):
            self.forgot_answers = True


_numbers = count()
shared: ContextVar[Turn | None] = ContextVar("memtrace_shared_turn", default=None)
"""The turn that a library's run makes that of everything in this context."""
