"""Conversations whose memory is their own history: which earlier call a prompt goes on from, and what has changed.

A chat API has no memory of its own, so every call repeats what the application wants remembered. A prompt goes on from
the conversation as it was after the last reply that it repeats; what it no longer repeats was trimmed. Such a state
never changes: calls that go on from one at the same time, or again, do not see each other.
"""

from __future__ import annotations

import secrets
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import replace
from itertools import count, islice
from operator import attrgetter
from weakref import WeakSet

from opentelemetry import baggage

from memtrace_otel.capture import recall, scope_id
from memtrace_otel.capture.fork import after_fork, new_lock_after_fork
from memtrace_otel.capture.guard import note_drop
from memtrace_otel.instrumentation.chat_history.alignment import (
    ALONE,
    HERE,
    REPEATED_BY_CHANCE,
    SURELY,
    Continued,
    Conversation,
    Entry,
    Place,
    Prompt,
    aligned,
    how_far_told,
    key_of,
    one_of_each,
)
from memtrace_otel.instrumentation.chat_history.instructions import instructions_key
from memtrace_otel.instrumentation.chat_history.messages import INSTRUCTIONS, Message, Request

_STATES = 4096
_ENTRIES = 4096
_MAY_BE_SUMMARISED = 256
_CHARACTERS = 8_000_000

Quoted = Callable[[], Sequence[recall.Answer]]
"""Replies of this turn that stand in the texts of a prompt."""

_lock = threading.RLock()
new_lock_after_fork(sys.modules[__name__])
_known: OrderedDict[str, Conversation] = OrderedDict()  # by state
_states: OrderedDict[tuple[str, ...], list[str]] = OrderedDict()  # states by what they are found by, newest last
_characters = 0  # sizes of all of them
_ended: WeakSet[Entry] = WeakSet()  # trimmed or summarised by a call, as long as a state holds them
_recent: ContextVar[str] = ContextVar("memtrace_recent_conversation", default="")
_unanswered: ContextVar[tuple[Conversation, Prompt] | None] = ContextVar("memtrace_unanswered_prompt", default=None)
_REPLY, _NEWEST = "reply", "newest"


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


def find(request: Request, place: Place, quoted: Quoted) -> tuple[Continued | None, Collection[int]]:
    """Find the conversation that a prompt continues: none when it begins one (or comes from another process), and when
    nothing tells which it is; then also the positions of what may be of several, or of one that may be another's."""
    messages = request.messages
    keys = [key_of(m) for m in messages]
    with _lock:
        named = _found_for(request, _NEWEST) if request.conversation else []
        newest = next(iter(_found_by((_REPLY, request.previous_id)) or named), None)
        if request.held_there:  # nothing was trimmed
            return newest and Continued(newest, {}, [], newest.certain), ()
        for at in range(len(messages) - 1, -1, -1):
            states = _found_for(request, keys[at]) if messages[at].role == "assistant" else []
            said = [key for key, m in zip(keys[: at + 1], messages, strict=False) if m.role not in INSTRUCTIONS]
            known = {one.id for one in states if not one.was_asked_behind(said)}
            if states := [one for one in states if one.id in known]:
                fitting = [aligned(state, keys[: at + 1]) for state in states]
                found = one_of_each(fitting, prompt_key(request), place, _recent.get())
                best = _best(found, request, place, quoted)
                return best, () if best else {place for one in found for place in one.kept}
        if request.compacts and not newest:
            return _compacted_here(keys), ()
        asked = bool(messages) and messages[-1].role == "user"  # equal to an earlier question or not
        before = len(keys) - asked
        if newest or request.conversation:
            return newest and aligned(newest, keys[:before]), ()  # known by its name
        possible = _summarised(request, messages[:before], quoted)
        if len(possible) != 1:
            return None, range(len(possible) and len(keys))
        return replace(aligned(possible[0], keys[:before]), certain=False), ()


def as_written(found: Continued, request: Request) -> Continued:
    """What a prompt continues, as an earlier prompt has written it that it goes on from behind an unknown reply."""
    before = found.conversation.prompt
    if before is None or request.held_there or not (found.certain and before.length < len(request.messages)):
        return found
    if prompt_key(replace(request, messages=request.messages[: before.length])) != before.key:
        return found
    placed = {**before.new, **before.entries}
    return replace(found, kept={place: placed[place] for place in sorted(placed)}, removed=[])


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
    """Note with which prompt a call has gone on from here, and what that has written; that of another line stays."""
    with _lock:
        known = _known.get(conversation.state)
        before = known.prompt if known else None
        if known is not None and (before is None or before.entries.items() <= prompt.entries.items()):
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


def _compacted_here(keys: Sequence[str]) -> Continued | None:
    """A call that has a history compacted gives it no name: that of this context, when it is all of it."""
    here = _known.get(_recent.get())
    found = aligned(here, keys) if here else None
    return found if found and found.conversation.entries[-1] in found.kept.values() and not found.removed else None


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


def _summarised(request: Request, messages: Sequence[Message], quoted: Quoted) -> list[Conversation]:
    """Conversations that these messages may stand for, as they repeat none: they quote a long reply to a text with all
    that was said there last."""
    text = "\n".join(message.text for message in messages)
    replies = [one for one in quoted() if len(one.text) > REPEATED_BY_CHANCE and recall.quotes(text, one.text)]
    newest = islice(reversed(_known.values()), _MAY_BE_SUMMARISED if replies else 0)
    waiting = [one for one in newest if (one.name, one.user, one.continued) == ("", request.user, False)]
    return [one for one in waiting if any(one.was_given(reply, whole=True) for reply in replies)]


def _best(found: Sequence[Continued], request: Request, place: Place, quoted: Quoted) -> Continued | None:
    """Of the states that end with a reply, the one with most of the prompt and least else. A short reply alone is that
    of a conversation that a call of this turn has summarised, or of this place's own, unless it is another's, too."""
    tells = [SURELY if request.conversation else how_far_told(one.kept, request.messages) for one in found]
    likely = [one for one, told in zip(found, tells, strict=True) if told == SURELY]
    if not likely:
        found = [replace(one, certain=False) for one in found]
        if tells == [ALONE]:
            return found[0]
        replies = quoted()
        likely = [one for one in found if any(_is_about(one.conversation, reply) for reply in replies)]
    if not likely:
        short = [one for one, told in zip(found, tells, strict=True) if told == HERE]
        return _told_apart(short, place) if any(_is_here(one.conversation, request, place) for one in short) else None
    asked = instructions_key(request.messages)
    fits = [(one.fit, -len(one.removed), one.conversation.instructions.key == asked) for one in likely]
    return _told_apart([one for one, fit in zip(likely, fits, strict=True) if fit == max(fits)], place)


def _is_about(conversation: Conversation, reply: recall.Answer) -> bool:
    """Whether the call that gave this reply had the messages of the conversation: in one text, or as its history."""
    newest = _known.get(_recent.get())
    if newest and newest.id == conversation.id and newest.state != conversation.state:
        return (reply.ref, reply.origin) in newest.entries[-1].made_of
    return conversation.was_given(reply, whole=False)


def _is_here(conversation: Conversation, request: Request, place: Place) -> bool:
    """Whether something else than words says that a request is of this conversation: whom it is for, or where."""
    then, newest = conversation.place, _known.get(_recent.get())
    return bool(
        request.user
        or (place.session and place.session == then.session)
        or (place.trace and place.trace == then.trace)
        or (newest and newest.id == conversation.id)
    )


def _told_apart(equal: Sequence[Continued], place: Place) -> Continued | None:
    """Which of equal histories is gone on from: that of this session, of this turn. A context may be that of a thread
    which serves many, so its newest one is taken only where all others have been gone on from; that leaves a doubt."""
    for sign in (attrgetter("session"), attrgetter("trace")):
        equal = [one for one in equal if sign(place) and sign(one.conversation.place) == sign(place)] or equal
    if len(equal) < 2:
        return next(iter(equal), None)
    recent = _recent.get()
    likely = min(equal, key=lambda one: (one.conversation.state != recent, one.conversation.continued))
    waiting = [one.conversation.state for one in equal if not one.conversation.continued]
    return replace(likely, certain=False) if waiting == [recent] else None


def forget() -> None:
    """Drop every conversation (and the lock, which a fork may have left held)."""
    global _lock, _characters
    _lock, _characters = threading.RLock(), 0
    _known.clear()
    _states.clear()
    _ended.clear()
    _recent.set("")
    _unanswered.set(None)
