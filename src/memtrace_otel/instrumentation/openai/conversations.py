"""Conversations whose memory is their own history: which earlier call a prompt goes on from, and what has changed.

A chat API has no memory of its own, so every call repeats what the application wants remembered. A prompt goes on from
the conversation as it was after the last reply that it repeats; what it no longer repeats was trimmed. Such a state
never changes: calls that go on from one at the same time, or again, do not see each other.
"""

from __future__ import annotations

import secrets
import sys
import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from itertools import count
from operator import attrgetter
from weakref import WeakSet

from opentelemetry import baggage

from memtrace_otel.capture import recall, scope_id, variable_ref
from memtrace_otel.capture.fork import after_fork, new_lock_after_fork
from memtrace_otel.capture.guard import note_drop
from memtrace_otel.instrumentation.openai.calls import INSTRUCTIONS, Message, Request, Version
from memtrace_otel.instrumentation.openai.instructions import Instructions, instructions_key
from memtrace_otel.model import content_digest, make_ref, split_ref
from memtrace_otel.semconv import RefKind

_STATES = 4096
_ENTRIES = 4096
_CHARACTERS = 8_000_000
REPEATED_BY_CHANCE = 64
"""A reply of at most as many characters, alone, tells no conversation from others: "OK", "You are welcome."."""


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Entry:
    """One message that a conversation holds. `key` tells equal messages; `origin` is the span that put it into the
    history, '' while no call has repeated it yet: so long its `text` is kept. `made_of` are the versions it was said
    as: a message, or the answer and the tool calls of a reply. `unknown`: it cannot be told of which conversation."""

    key: str
    ref: str
    origin: str = ""
    text: str = ""
    made_of: tuple[Version, ...] = ()
    unknown: bool = False

    @property
    def versions(self) -> tuple[Version, ...]:
        """What a reader reads: the entry, or what it was said as while it is no history."""
        return self.made_of if self.made_of and not self.origin else ((self.ref, self.origin),)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a call is made: the session that its baggage names and the trace that it is in, '' for none."""

    session: str = ""
    trace: str = ""


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt and what it was taken for: `entries` by position among its messages, as they were written, and what was
    `new` in it. `key` tells it from others of this process."""

    key: int
    entries: Mapping[int, Entry]
    new: Mapping[int, Entry]


@dataclass(frozen=True, slots=True)
class Conversation:
    """The history of one conversation as of one reply, with which `entries` end; `instructions` are its system
    messages, `asked` is the ref of its newest question.

    `mark` is in the refs of its entries: one that is begun anew under the same id (another process, a restart) does not
    write on the old one's. `volatile`: its instructions change though nothing is summarised (a clock, notes found).
    `certain` is False once another conversation could have been meant. `continued`: a call has gone on from here, the
    first one with `prompt`. `place` is where its newest question was asked. `user` is whoever was named first, `scope`
    the memory scope that it was begun with.
    """

    id: str
    mark: str
    scope: str
    user: str = ""
    entries: tuple[Entry, ...] = ()
    instructions: Instructions = field(default_factory=Instructions)
    asked: str = ""
    volatile: bool = False
    certain: bool = True
    continued: bool = False
    prompt: Prompt | None = None
    place: Place = Place()
    numbers: Iterator[int] = field(default_factory=lambda: count(1))  # this and the next: one for all its states

    @property
    def name(self) -> str:
        """The caller's own name of the conversation, '' without one."""
        return self.id if self.id != self.mark else ""

    @property
    def state(self) -> str:
        """What tells this state from all others: the reply, or the version of a summary, that it ends with."""
        return self.entries[-1].ref + self.entries[-1].origin if self.entries else ""

    @property
    def size(self) -> int:
        """Characters of text that are kept, and 8 for each entry."""
        entries = [*self.entries, *(self.prompt.new.values() if self.prompt else ())]
        return sum(len(entry.text) for entry in entries) + 8 * len(entries)

    def told_again(self, entry: Entry, text: str = "") -> Entry:
        """The same message as another record: what becomes of the first one is no matter of this line."""
        return replace(entry, ref=self._new_ref(), origin="", text=entry.text or text)

    def new_entry(self, message: Message, made_of: tuple[Version, ...] = ()) -> Entry:
        """An entry with a ref of its own: equal messages of two turns stay two, as what was said and in the history."""
        ref = self._new_ref()
        if not made_of:
            mark = split_ref(ref)[1]
            digest = split_ref(variable_ref(RefKind.MESSAGE, message.text))[1]
            made_of = ((make_ref(RefKind.MESSAGE, message.id or f"{digest}.{mark}"), ""),)
        return Entry(key_of(message.role, message.text), ref, text=message.text, made_of=made_of)

    def _new_ref(self) -> str:
        return make_ref(RefKind.STATE, f"{self.mark}.{next(self.numbers)}")


@dataclass(frozen=True, slots=True)
class Continued:
    """A prompt matched with the conversation it continues.

    `kept` maps positions among the prompt's messages to entries, `removed` are the entries it does not repeat;
    `certain` is False when another one could have been meant, now or before: with the same history, or an unknown one.
    """

    conversation: Conversation
    kept: dict[int, Entry]
    removed: list[Entry]
    certain: bool


_lock = threading.RLock()
new_lock_after_fork(sys.modules[__name__])
_known: OrderedDict[str, Conversation] = OrderedDict()  # by state
_states: OrderedDict[tuple[str, ...], list[str]] = OrderedDict()  # states by what they are found by, newest last
_characters = 0  # sizes of all of them
_ended: WeakSet[Entry] = WeakSet()  # trimmed or summarised by a call, as long as a state holds them
_recent: ContextVar[str] = ContextVar("memtrace_recent_conversation", default="")
_unanswered: ContextVar[tuple[Conversation, Prompt] | None] = ContextVar("memtrace_unanswered_prompt", default=None)
_REPLY, _NEWEST = "reply", "newest"


def key_of(role: str, text: str) -> str:
    """What tells a message from others of its conversation, however it was trimmed of white space."""
    return content_digest(f"{role}\n{text.strip()}")


def prompt_key(request: Request) -> int:
    """What tells a prompt from others, whichever model is asked and however the reply comes."""
    return hash((request.conversation, request.user, request.previous_id, request.messages))


def here() -> Place:
    """Where this is."""
    return Place(_named_here("gen_ai.conversation.id", "session.id"), recall.trace_here())


def user_here() -> str:
    """The user that the baggage names, '' for none."""
    return _named_here("user.id", "enduser.id")


def _named_here(*keys: str) -> str:
    return next((str(value) for key in keys if (value := baggage.get_baggage(key))), "")


def find(request: Request, place: Place) -> list[Continued]:
    """Find the conversation that a prompt continues: none when it begins one (or comes from another process), several
    when nothing tells which of them it is."""
    messages = request.messages
    keys = [key_of(m.role, m.text) for m in messages]
    with _lock:
        named = _found_for(request, _NEWEST) if request.conversation else []
        newest = (_found_by((_REPLY, request.previous_id)) or named)[:1]
        if request.held_there:  # nothing was trimmed
            return [Continued(state, {}, [], state.certain) for state in newest]
        for at in range(len(messages) - 1, -1, -1):
            states = _found_for(request, keys[at]) if messages[at].role == "assistant" else []
            if states:
                return _best([aligned(state, keys[: at + 1]) for state in states], request, place)
        if request.compacts and not newest:
            return _compacted_here(keys)
        asked = bool(messages) and messages[-1].role == "user"  # equal to an earlier question or not
        return [aligned(state, keys[: len(keys) - asked]) for state in newest]  # known by its name


def begin(request: Request) -> Conversation:
    """Start a conversation; it is found again once it has an answer."""
    named, user = request.conversation, request.user
    mark = _mark_of(named)
    if not named:
        return Conversation(mark, mark, scope_id("conversation", run=mark), user)
    return Conversation(named, mark, scope_id("conversation", run=named, user=user or None), user)


def remember(conversation: Conversation, reply: Sequence[Entry], request: Request, reply_id: str) -> None:
    """Make a conversation as of its newest reply findable by what the next request may have of it."""
    conversation = replace(conversation, entries=conversation.entries[-_ENTRIES:])
    conversation = replace(conversation, user=conversation.user or request.user)
    named = request.conversation or (conversation.name if request.compacts else "")
    found_by = [*(entry.key for entry in reply), *[_NEWEST] * bool(named)]
    users = dict.fromkeys((conversation.user, "")) if named or request.compacts else (request.user,)
    with _lock:
        _put(conversation)
        for way in (*[(_REPLY, reply_id)] * bool(reply_id), *((named, user, by) for user in users for by in found_by)):
            states = _states.setdefault(way, [])
            states.append(conversation.state)
            del states[:-16]
            _states.move_to_end(way)
        while len(_known) > 1 and (len(_known) > _STATES or _characters > _CHARACTERS):
            _forget_oldest()
        while len(_states) > 4 * _STATES:
            _states.popitem(last=False)
    _recent.set(conversation.state)
    _unanswered.set(None)


def go_on(conversation: Conversation) -> bool:
    """Note that a call goes on from here. Whether it is the first one: it writes what no call has written yet."""
    with _lock:
        known = _known.get(conversation.state)
        if known is not None:
            _known[conversation.state] = replace(known, continued=True)
        return known is not None and not known.continued


def went_on(conversation: Conversation, prompt: Prompt) -> None:
    """Note with which prompt a call has gone on from here, and what that has written; that of another stays."""
    with _lock:
        known = _known.get(conversation.state)
        if known is not None and known.prompt is None:
            _put(replace(known, prompt=prompt))


def wait_for_answer(conversation: Conversation, prompt: Prompt) -> None:
    """Note that a prompt which goes on from here has no answer: this context may ask again."""
    _unanswered.set((conversation, prompt))


def unanswered(key: int, conversation: Conversation, place: Place) -> tuple[Conversation, Prompt] | None:
    """The newest prompt of this context, if it has this key, went on from there, was asked here and has no answer."""
    known = _unanswered.get()
    if known is None or (known[1].key, known[0].state, known[0].place) != (key, conversation.state, place):
        return None
    return known


def end(entries: Iterable[Entry]) -> None:
    """Note that a call has trimmed or summarised these."""
    with _lock:
        for entry in entries:
            _ended.add(entry)


def has_ended(entry: Entry) -> bool:
    """Whether a call has trimmed or summarised this version of a message."""
    with _lock:
        return entry in _ended


def _found_for(request: Request, by: str) -> list[Conversation]:
    """What a request can go on from, newest first: of its conversation and user, of its user, of anybody who gives no
    name. A user who is named late goes on from what nobody was named for, if no other user did; a request that names no
    user, from any of its conversation. The model's side gives no name twice, whoever the user is."""
    named_there = request.held_there and not request.previous_id
    named, user = request.conversation, "" if named_there else request.user
    found = _found_by((named, user, by))
    if found or not (named and user):
        return found
    return [one for one in _found_by((named, "", by)) if not (one.user or one.continued)]


def _compacted_here(keys: Sequence[str]) -> list[Continued]:
    """A call that has a history compacted gives it no name: that of this context, when it is all of it."""
    here = _known.get(_recent.get())
    found = [aligned(here, keys)] if here else []
    return [one for one in found if one.conversation.entries[-1] in one.kept.values() and not one.removed]


def _found_by(way: tuple[str, ...]) -> list[Conversation]:
    """The states found this way, newest first."""
    return [_known[state] for state in reversed(_states.get(way, ())) if state in _known]


def _put(conversation: Conversation) -> None:
    global _characters
    before = _known.get(conversation.state)
    _characters += conversation.size - (before.size if before else 0)
    _known[conversation.state] = conversation


def _forget_oldest() -> None:
    global _characters
    _, forgotten = _known.popitem(last=False)
    _characters -= forgotten.size
    if not forgotten.continued:
        note_drop("conversations", system="long_context")


@after_fork
def _in_child() -> None:
    """What a child says is of lines of its own, under other refs than its parent and its siblings use."""
    lines: dict[str, tuple[str, Iterator[int]]] = {}
    for state, one in _known.items():
        mark, numbers = lines.setdefault(one.mark, (_mark_of(one.name), count(1)))
        id = one.name or mark
        _known[state] = replace(one, id=id, mark=mark, numbers=numbers, continued=True)
    _unanswered.set(None)


def _mark_of(name: str) -> str:
    """A new mark for a conversation of this name, '' for one without."""
    mark = secrets.token_hex(8)
    return f"{name}.{mark[:8]}" if name else mark


def _best(found: Sequence[Continued], request: Request, place: Place) -> list[Continued]:
    """Of the states that end with a reply, the one with most of the prompt and least else. A short reply alone is that
    of this context's conversation, unless it is another's, too."""
    tells = [_SURELY if request.conversation else _told(one.kept, request.messages) for one in found]
    sure = [one for one, told in zip(found, tells, strict=True) if told == _SURELY]
    if not sure and len(found) == 1 and tells == [_ALONE]:
        return [replace(found[0], certain=False)]
    if not sure:
        short = [replace(one, certain=False) for one, told in zip(found, tells, strict=True) if told == _HERE]
        return _told_apart(short, place) if _recent.get() in {one.conversation.state for one in short} else []
    asked = instructions_key(request.messages)
    fits = [(len(one.kept), -len(one.removed), one.conversation.instructions.key == asked) for one in sure]
    return _told_apart([one for one, fit in zip(sure, fits, strict=True) if fit == max(fits)], place)


def _told_apart(equal: Sequence[Continued], place: Place) -> list[Continued]:
    """Which of equal histories is gone on from: that of this session, of this turn. A context may be that of a thread
    which serves many, so its newest one is taken only where all others have been gone on from; that leaves a doubt."""
    for sign in (attrgetter("session"), attrgetter("trace")):
        equal = [one for one in equal if sign(place) and sign(one.conversation.place) == sign(place)] or equal
    if len(equal) < 2:
        return list(equal)
    recent = _recent.get()
    likely = min(equal, key=lambda one: (one.conversation.state != recent, one.conversation.continued))
    alone = len({one.conversation.id for one in equal}) == 1
    waiting = [one.conversation.state for one in equal if not one.conversation.continued]
    return [replace(likely, certain=False)] if alone or waiting == [recent] else list(equal)


_SURELY, _HERE, _ALONE, _NOTHING = 3, 2, 1, 0


def _told(kept: Mapping[int, Entry], messages: Sequence[Message]) -> int:
    """How far what a prompt repeats makes a conversation known: a question with its reply and a long reply that comes
    first do; a short one does where the context is the same. One that follows an unknown question may have been given
    to somebody else, a long one only if that is known, too."""
    told = _NOTHING
    for place in kept:
        if messages[place].compaction:
            return _SURELY
        if messages[place].role != "assistant":
            continue
        before = next((p for p in range(place - 1, -1, -1) if messages[p].role not in INSTRUCTIONS), None)
        if before in kept or (before is None and len(messages[place].text) > REPEATED_BY_CHANCE):
            return _SURELY
        if before is None or messages[before].role != "user":
            told = _HERE
        elif len(messages[place].text) > REPEATED_BY_CHANCE:
            told = max(told, _ALONE)
    return told


def aligned(conversation: Conversation, keys: Sequence[str]) -> Continued:
    """Match the keys of a prompt, up to the reply that it goes on from, with the entries, in order and newest first;
    then those that stand elsewhere now."""
    entries = conversation.entries
    places: dict[str, list[int]] = {}
    for index, entry in enumerate(entries):
        places.setdefault(entry.key, []).append(index)
    matched: dict[int, int] = {}
    before = len(entries)
    for place in range(len(keys) - 1, -1, -1):
        known = places.get(keys[place], [])
        at = bisect_left(known, before) - 1
        if at >= 0:
            matched[place] = before = known[at]
    newest, taken = max(matched.values(), default=0), set(matched.values())
    missing = [place for place in range(len(keys) - 1, -1, -1) if place not in matched]
    moved = {
        key: [index for index in places.get(key, ()) if index < newest and index not in taken]
        for key in {keys[place] for place in missing}
    }
    for place in missing:
        if moved[keys[place]]:
            matched[place] = moved[keys[place]].pop()
    held = {entries[index].ref for index in matched.values()}  # of a summary in several messages one may be left
    removed = [entry for entry in entries[: max(matched.values(), default=len(entries))] if entry.ref not in held]
    kept = {place: entries[matched[place]] for place in sorted(matched)}
    return Continued(conversation, kept, removed, conversation.certain)


def forget() -> None:
    """Drop every conversation (and the lock, which a fork may have left held)."""
    global _lock, _characters
    _lock, _characters = threading.RLock(), 0
    _known.clear()
    _states.clear()
    _ended.clear()
    _recent.set("")
    _unanswered.set(None)
