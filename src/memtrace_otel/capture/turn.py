"""Turns: the searches and answers of one trace or execution context, and which of their texts a prompt quotes.

An application hands memories to a model as text, so the identity of a record is lost in the prompt. A turn remembers
the texts that its searches returned, and looks for exact quotes of them. A trace has one turn. Outside a trace the
execution context has one. An answer outside both is marked `unknown_turn`.

Contents stay in memory, whether contents are captured or not. No content reaches a span from here.
"""

from __future__ import annotations

import json
import threading
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable, Sequence
from contextlib import suppress
from contextvars import ContextVar
from itertools import combinations, count
from time import perf_counter
from typing import NamedTuple

from opentelemetry import trace

from memtrace_otel.capture.fork import new_lock_after_fork
from memtrace_otel.capture.guard import note_drop
from memtrace_otel.capture.layout import Read, Written
from memtrace_otel.capture.quotes import MIN_TEXT, PROMPT, WORK, Recalled, fold, found_in
from memtrace_otel.capture.quotes import holds as holds
from memtrace_otel.capture.quotes import places_in as places_in
from memtrace_otel.capture.quotes import quotes as quotes
from memtrace_otel.capture.searches import (
    ACTIVE_SECONDS,
    Answer,
    Retrieval,
    asked_for,
    common_runs,
    of_history,
    place,
    size_of,
    unanswered,
    waiting,
)
from memtrace_otel.capture.searches import Place as Place
from memtrace_otel.model import ref_kind
from memtrace_otel.semconv import OpKind, RefKind, Role

_ALL_BYTES, _TURN_BYTES = 32 << 20, 8 << 20
_ENTRIES, _SEARCHES, _ANSWERS, _CALLS = 1024, 256, 1024, 64
_NEWEST = 64
"""Answers that may be judged, stored or summarised: the newest."""
_BEFORE = 16
"""Searches that a context hands to its next turn."""
_GIVEN = 256
"""Answers that a context hands to its next turn."""
_ANSWERED_HERE = 256
_WRITING = frozenset({OpKind.INGEST, OpKind.EXTRACT, OpKind.DECIDE, OpKind.CREATE, OpKind.UPDATE, OpKind.DELETE})
_FROM_MEMORY = frozenset({Role.HIT, Role.CONTEXT})

answered_here: ContextVar[tuple[str, ...]] = ContextVar("memtrace_answered_here", default=())
"""Origins of the latest answers of this context."""
_searched_here: ContextVar[tuple[str, ...]] = ContextVar("memtrace_searched_here", default=())
"""Origins of the latest searches of this context."""


# --- turns ---------------------------------------------------------------------------------------------
class InPrompt(NamedTuple):
    """What of a turn a prompt holds; the last query is the last one of the prompt.

    `whole` is False if there was too much text to look for everything. `certain` is False if the prompt names no query
    or two hits have the same words.
    """

    queries: list[Recalled]
    hits: list[Recalled]
    whole: bool
    certain: bool


class Turn:
    """The searches, answers and tool calls of one turn, oldest first; the oldest are forgotten first.

    `before` and `given`: searches and answers (newest first) of the execution context before the turn. `trace_id` '' is
    a turn outside traces.
    """

    __slots__ = (
        *("__weakref__", "_answers", "_before", "_calls", "_entries", "_given", "_retrievals"),
        *("forgot_answers", "number", "of_trace", "returned", "size", "trace_id", "used"),
    )

    def __init__(
        self,
        before: tuple[Retrieval, ...] = (),
        trace_id: str = "",
        *,
        given: tuple[Answer, ...] = (),
        of_trace: bool = False,
    ) -> None:
        self.number = next(_numbers)
        self._before, self._given, self.trace_id, self.of_trace = before, given, trace_id, of_trace
        self._retrievals: list[Retrieval] = []
        self._answers: list[Answer] = []
        self._calls: list[Recalled] = []
        self._entries = 0
        self.size, self.used = 0, perf_counter()
        self.forgot_answers = False
        """Whether the turn had more answers than it holds."""
        self.returned = ""
        """Origin of the answer that a library's run returned to the program, '' after a newer answer."""

    def retrieved(
        self, origin: str, scope: str, read: list[Read], context: str = "", *, certain: bool = True
    ) -> Retrieval:
        """Add a search: the inputs of its operation, and the ref of the context that it made."""
        read = read[:_ENTRIES]
        done = Retrieval(origin, scope, read, place.get(), perf_counter(), context, {}, certain)
        _searched_here.set((*_searched_here.get()[1 - _BEFORE :], origin))
        with _turns.lock:
            self._retrievals.append(done)
            self._entries += len(read)
            self._grow(size_of(done))
            while self._entries > _ENTRIES or len(self._retrievals) > _SEARCHES:
                self._forget_first(self._retrievals)
        return done

    def answered(self, answer: Answer) -> None:
        """Add an answer."""
        if answer.origin not in answered_here.get():
            answered_here.set((*answered_here.get()[1 - _ANSWERED_HERE :], answer.origin))
        self._add(self._answers, answer, _ANSWERS)
        if answer.about is None:
            self.returned = ""

    def returns(self, texts: Iterable[str]) -> None:
        """Note that a library's run returned these texts to the program: one of them is the reply to the user."""
        folded = set(map(fold, texts)) - {""}
        found = (one.about or one for one in self.newest_answers() if fold(one.text) in folded)
        self.returned = next((one.origin for one in found), "")

    def called(self, completion: Recalled) -> None:
        """Add a reply that calls tools."""
        self._add(self._calls, completion, _CALLS)

    def call_with(self, text: str) -> Recalled | None:
        """The newest reply that calls a tool with this text in its arguments."""
        if len(text) < MIN_TEXT:
            return None
        forms = [text]
        for _ in range(2):  # arguments are JSON, in a reply that is JSON
            forms.append(json.dumps(forms[-1], ensure_ascii=False)[1:-1])
        with _turns.lock:
            calls = self._calls[::-1]
        return next((call for call in calls if any(form in call.text for form in forms)), None)

    def retrievals(self) -> list[Retrieval]:
        """The searches so far, oldest first; of those before the turn no history of another library run."""
        here = place.get()[:1]
        with _turns.lock:
            before = [done for done in self._before if not of_history(done) or done.place[:1] == here]
            return [*before, *self._retrievals]

    def newest_retrievals(self) -> tuple[Retrieval, ...]:
        """The latest searches, oldest first."""
        return (*self._before, *self._retrievals)[-_BEFORE:]

    def newest_answers(self) -> list[Answer]:
        """The latest answers, newest first."""
        with _turns.lock:
            return self._answers[: -_NEWEST - 1 : -1]

    def reply(self) -> Answer | None:
        """The newest reply to the user, None without an answer: no summary, title or profile that was made after the
        reply."""
        newest = self.newest_answers()
        given = [one for one in newest if one.about is None] or [one.about for one in newest[:1]]
        return next((one for one in newest if one.origin == self.returned), next(iter(given), None))

    def all_answers(self) -> list[Answer]:
        """The answers of the turn and of its execution context before, newest first."""
        with _turns.lock:
            return [*self._answers[::-1], *self._given]

    def telling_answers(self) -> list[Answer]:
        """The answers that a later prompt identifies by their words, newest first."""
        return [answer for answer in self.all_answers() if answer.telling]

    def found_in(self, prompt: str, trace_id: str = "") -> InPrompt:
        """The queries and hits that the prompt of a model call in this trace ('': outside any) quotes.

        A search that another turn's call was given counts only if the prompt holds its query. A hit is left out if the
        search of another owner fits the prompt as well.
        """
        searched, folded, asker = self.retrievals(), fold(prompt[:PROMPT]), trace_id or self.number
        asked = {query.ref: query for done in searched if (query := done.query())}
        queries, all_queries = found_in(folded, asked.values())
        queries.sort(key=lambda query: folded.rfind(fold(query.text)))
        refs, question = {query.ref for query in queries}, queries[-1].ref if queries else ""
        own = {done.origin for done in searched if not done.given_to or asker in done.given_to}
        searched = [done for done in searched if done.origin in own or asked_for(done) in refs]
        hits, all_hits = found_in(folded, [hit for done in searched for hit in done.hits()])
        here = _searched_here.get()
        returned = Counter(search for search, _ in {(hit.retrieved_by, fold(hit.text)) for hit in hits})
        rank = {
            done.origin: (
                *(asked_for(done) == question != "", done.origin in own, common_runs(done.place)),
                *(done.origin in here, returned[done.origin]),
            )
            for done in searched
        }
        best: dict[str, str] = {}  # of the searches that returned an equal text
        for hit in hits:
            text = fold(hit.text)
            if text not in best or rank[hit.retrieved_by] >= rank[best[text]]:
                best[text] = hit.retrieved_by
        chosen = [hit for hit in hits if best[fold(hit.text)] == hit.retrieved_by]
        certain = bool(queries) and {hit[:2] for hit in hits} == {hit[:2] for hit in chosen}
        texts: defaultdict[str, set[str]] = defaultdict(set)
        for text, search in best.items():
            texts[search].add(text)
        sure = {d.origin for d in searched if d.origin in texts and self._is_sure(d, texts[d.origin], trace_id)}
        return InPrompt(queries, [hit for hit in chosen if hit.retrieved_by in sure], all_queries and all_hits, certain)

    def _is_sure(self, done: Retrieval, texts: set[str], trace_id: str = "") -> bool:
        """Whether no search of another owner fits a prompt with these texts of `done` as well: an unanswered search of
        this turn or, if `done` was answered, a newer unanswered search of another context."""
        if trace_id in done.given_to or (self.joined and done in self._retrievals):
            return True
        own = {near.origin for near in self.retrievals()}
        others = [one for one in unanswered() if one.scope != done.scope and asked_for(one) == asked_for(done)]
        if done.given_to:
            others = [one for one in others if one.origin not in own and one.ended > done.ended]
        else:
            others = [one for one in others if one.origin in own]
        found = ({fold(hit.text) for hit in other.hits()} for other in others)
        return not any(texts <= held if texts else not held for held in found)

    def gave(self, hits: Iterable[Recalled], trace_id: str = "") -> None:
        """Note that a model call in this trace was given these hits."""
        searches = {hit.retrieved_by for hit in hits}
        with _turns.lock:
            for done in self.retrievals():
                if done.origin in searches:
                    self._give(done, trace_id)

    def fruitless_for(self, queries: Iterable[Recalled]) -> list[str]:
        """Origins of the searches for one of these queries that returned nothing: a model call was given that result.

        Searches before the turn count if the turn has made none for these queries."""
        refs = {query.ref for query in queries}
        with _turns.lock:
            own = [done for done in self._retrievals if asked_for(done) in refs]
            before = [done for done in self._before if asked_for(done) in refs]
            fresh = [done for done in before if not done.given_to]
            found = own or fresh or [done for done in before if done.given_to.keys() & before[-1].given_to.keys()]
            most = max((common_runs(done.place) for done in found), default=0)
            near = [done for done in found if common_runs(done.place) in (len(done.place), most)]
            sure = [done for done in near if not done.hits() and self._is_sure(done, set())]
            for done in sure:
                self._give(done, "")
        return [done.origin for done in sure]

    def _give(self, done: Retrieval, trace_id: str) -> None:
        done.given_to[trace_id or self.number] = None
        if len(done.given_to) > _NEWEST:
            del done.given_to[next(iter(done.given_to))]

    @property
    def joined(self) -> bool:
        """Whether a trace, or a library's run around this context, holds the turn together."""
        return self.of_trace or shared.get() is self

    def forget(self) -> None:
        """Drop everything."""
        self._before, self._given = (), ()
        for entries in (self._retrievals, self._answers, self._calls):
            entries.clear()
        self._entries = self.size = 0

    def _add(self, entries: list[Answer] | list[Recalled], new: Answer | Recalled, most: int) -> None:
        with _turns.lock:
            if any(known[:2] == new[:2] for known in entries[-_NEWEST:]):
                return  # the same, with less said of it
            entries.append(new)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
            self._grow(size_of(new))
            if len(entries) > most:
                self._forget_first(entries)

    def _grow(self, size: int) -> None:
        """Count an addition and make room for it; the lock is held."""
        self.used = perf_counter()
        self.size += size
        _turns.use(self, size)
        while self.size > _TURN_BYTES:
            self._forget_first(self._retrievals or self._calls or self._answers)
            note_drop("recall")
        _turns.make_room()

    def _forget_first(self, entries: list[Retrieval] | list[Recalled] | list[Answer]) -> None:
        first = entries.pop(0)
        size = size_of(first)
        self.size -= size
        _turns.bytes -= size
        if isinstance(first, Retrieval):
            self._entries -= len(first.read)
        elif isinstance(first, Answer):
            self.forgot_answers = True


_numbers = count()
shared: ContextVar[Turn | None] = ContextVar("memtrace_shared_turn", default=None)
"""The turn that a library's run makes that of everything in this context."""


class _Turns:
    """LRU of turns, bounded to 32 MiB, keyed by trace id or, outside a trace, by the turn's number."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # re-entrant: a signal handler may come in between
        new_lock_after_fork(self)
        self.kept: OrderedDict[str | int, Turn] = OrderedDict()
        self.bytes = 0

    @property
    def lock(self) -> threading.RLock:
        """Held while a turn changes."""
        return self._lock

    def use(self, turn: Turn, size: int) -> None:
        """Make a turn the most recently used one, with `size` bytes more."""
        key = turn.trace_id if turn.of_trace else turn.number
        self.kept[key] = turn
        self.kept.move_to_end(key)
        self.bytes += size

    def make_room(self) -> None:
        """Forget the turns that were used longest ago; a turn that may still go on is counted as a drop."""
        while self.bytes > _ALL_BYTES and len(self.kept) > 1:
            _, turn = self.kept.popitem(last=False)
            self.bytes -= turn.size
            if perf_counter() - turn.used < ACTIVE_SECONDS:
                note_drop("recall")
            turn.forget()

    def forget(self) -> None:
        """Drop every turn."""
        self.kept.clear()
        self.bytes = 0


_turns = _Turns()
_recent: ContextVar[Turn | None] = ContextVar("memtrace_recent_turn", default=None)
_outside: ContextVar[Turn | None] = ContextVar("memtrace_turn_outside_traces", default=None)


# --- the turn here -------------------------------------------------------------------------------------------------
def share_turn(turn: Turn | None = None) -> Turn:
    """Make a turn (None: a new one) that of this context and of its copies: for libraries that run the parts of a turn
    in copies of a context, without a span around the turn."""
    turn = turn or _next_turn()
    _recent.set(turn)
    if not turn.of_trace:
        _outside.set(turn)
    shared.set(turn)
    return turn


def unshare_turn(turn: Turn) -> None:
    """End a shared turn: the next turn of this context knows its searches."""
    if shared.get() is turn:
        shared.set(None)


def turn_of(trace_id: str, *, alone: bool = False) -> Turn:
    """The turn of a trace, made if new; it becomes the most recent one of this context.

    A trace that is one operation (`alone`), or the trace of another instrumentation that makes no span current, belongs
    to the turn of the context."""
    turn = _turns.kept.get(trace_id)
    if turn is None and (alone or (shared.get() is not None and trace_here() != trace_id)):
        turn = shared.get() or _next_turn(trace_id)
        _outside.set(turn)
    elif turn is None:
        with _turns.lock:
            turn = _turns.kept.setdefault(trace_id, Turn(trace_id=trace_id, of_trace=True))
    _recent.set(turn)
    return turn


def _next_turn(trace_id: str = "") -> Turn:
    """The turn after the latest one of this context outside a trace; the same for one trace."""
    outside = _outside.get()
    if outside is None:
        return Turn(trace_id=trace_id)
    if trace_id and outside.trace_id == trace_id:
        return outside
    return Turn(outside.newest_retrievals(), trace_id, given=tuple(outside.all_answers()[:_GIVEN]))


def recall(trace_id: str) -> Turn | None:
    """The turn of a model call: that of its trace or, outside a span (`trace_id` ''), the most recent of the context.

    A search outside a span belongs to the context also when a span begins after the search."""
    return (_turns.kept.get(trace_id) or _outside.get()) if trace_id else _recent.get()


def turn_within(trace_id: str) -> Turn | None:
    """The turn of this very trace or, outside a trace (''), the most recent one of the context."""
    return _turns.kept.get(trace_id) if trace_id else shared.get() or _outside.get()


def trace_here() -> str:
    """Id of the trace of the current span, '' outside a span."""
    here = trace.get_current_span().get_span_context()
    return f"{here.trace_id:032x}" if here.is_valid else ""


def turn_here() -> Turn | None:
    """The searches and answers of the current turn; ask before an operation starts."""
    return recall(trace_here())


def reply_in(trace_id: str) -> Answer | None:
    """The newest remembered reply to the user in a trace; also in a trace that is one operation."""
    if turn := _turns.kept.get(trace_id):
        return turn.reply()
    with _turns.lock:
        answers = (one for turn in _turns.kept.values() for one in turn.newest_answers())
        return next((one for one in answers if one.origin[:32] == trace_id), None)


# --- operations and their turn -------------------------------------------------------------------------------------
def is_step(system: str, around_kind: str, around_system: str) -> bool:
    """Whether a search inside another operation is a step of that operation, not a search of the turn."""
    return around_kind in _WRITING or (around_kind == OpKind.RETRIEVE and around_system == system)


def searched(origin: str, scope: str, read: list[Read], context: str, *, certain: bool, alone: bool) -> None:
    """Add a search to its turn; `alone`: the search is a trace by itself."""
    done = turn_of(origin[:32], alone=alone).retrieved(origin, scope, read, context, certain=certain)
    if alone:
        waiting.append(done)


def responded(origin: str, read: list[Read], written: list[Written], *, alone: bool) -> None:
    """Add an answer and its query to its turn."""
    turn = turn_of(origin[:32], alone=alone)
    query = next(((ref, text) for ref, role, _, text, _ in read if role == Role.QUERY), ("", ""))
    for ref, _, _, text, _, _ in written:
        if ref_kind(ref) == RefKind.ANSWER:
            turn.answered(Answer(ref, origin, text, query=query))
        elif ref_kind(ref) == RefKind.COMPLETION:
            turn.called(Recalled(ref, origin, text))


def lacks_turn(origin: str, *, alone: bool) -> bool:
    """Note that an answer starts in its turn. Return whether its own search may be missing: the turn has none, and a
    search of another context waits for an answer."""
    turn = recall("" if alone else origin[:32])
    own = {search.origin for search in turn.retrievals()} if turn else set[str]()
    joined = turn is not None and bool(own) and turn.joined
    open_searches = unanswered()
    mine = [search for search in open_searches if search.origin in own]
    if not joined and any(
        one.scope != other.scope and asked_for(one) == asked_for(other) for one, other in combinations(mine, 2)
    ):
        return True  # the answer may be for either owner
    for search in mine:
        with suppress(ValueError):  # another answer of the turn was faster
            waiting.remove(search)
    return len(open_searches) > len(mine) and not mine and not joined


def has_own_turn(read: Sequence[Read], started: float, *, alone: bool) -> bool:
    """Whether an answer that `lacks_turn` needs no search: it names the memory that it read, or its inputs quote no
    text of a waiting search that ended before `started` (`perf_counter`)."""
    given = " ".join(text for _, _, _, text, _ in read)
    if any(role in _FROM_MEMORY for _, role, _, _, _ in read) or not (alone or given):
        return True
    if not given or len(given) > PROMPT:
        return False
    prompt = fold(given)
    searches = [search for search in unanswered() if search.ended <= started]
    texts = {fold(one.text) for search in searches for one in (*search.queries(), *search.hits())}
    if any(not (search.queries() or search.hits()) for search in searches):
        return False  # the search recorded no text
    return len(texts) * len(prompt) <= WORK and not any(len(text) >= MIN_TEXT and text in prompt for text in texts)


def forget() -> None:
    """Drop every turn, and the searches that wait."""
    _turns.forget()
    waiting.clear()
    for known in (_recent, _outside, shared):
        known.set(None)
    for here in (place, answered_here, _searched_here):
        here.set(())
