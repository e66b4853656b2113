"""Conversations whose memory is their own history: which earlier call a prompt goes on from, and what has changed.

A chat API has no memory of its own, so every call repeats what the application wants remembered. A prompt that repeats
the last reply of a known conversation continues it; what it no longer repeats was trimmed. Only digests are kept.
"""

from __future__ import annotations

import secrets
import threading
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from itertools import count

from memtrace_otel.capture import scope_id
from memtrace_otel.capture.fork import after_fork
from memtrace_otel.capture.guard import note_drop
from memtrace_otel.instrumentation.openai.calls import INSTRUCTIONS, Message, Request
from memtrace_otel.model import content_digest, make_ref
from memtrace_otel.semconv import RefKind

_CONVERSATIONS = 1024
_ENTRIES = 4096
_CHARACTERS = 8_000_000
_REPEATED_BY_CHANCE = 64
"""A reply of at most as many characters, alone, tells no conversation from others: "OK", "You are welcome."."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One message that a conversation holds. `key` tells equal messages; `origin` is the span that put it into the
    history, '' while no call has repeated it yet: so long its `text` is kept, and `answered`, the span that said it."""

    key: str
    ref: str
    origin: str = ""
    text: str = ""
    answered: str = ""


@dataclass(slots=True)
class Conversation:
    """The history of one conversation as of its newest call; `instructions` is the key of its system messages.

    `mark` is in the refs of its entries: one that is begun anew under the same id (another process, a restart) does not
    write on the old one's.
    """

    id: str
    mark: str
    entries: list[Entry] = field(default_factory=list[Entry])
    instructions: str = ""
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    @property
    def scope(self) -> str:
        """Memory scope of the conversation."""
        return scope_id("conversation", run=self.id)

    @property
    def size(self) -> int:
        """Characters of text that are kept."""
        return sum(len(entry.text) for entry in self.entries)

    def new_entry(self, role: str, text: str, answered: str = "") -> Entry:
        """An entry with a ref of its own: equal messages of two turns stay two."""
        ref = make_ref(RefKind.STATE, f"{self.mark}.{next(self.numbers)}")
        return Entry(key_of(role, text), ref, text=text, answered=answered)

    def fork(self, upto: int) -> Conversation:
        """A conversation of its own that shares the history before `upto` (an edited question, a second try)."""
        id = secrets.token_hex(8)
        return Conversation(id, id, self.entries[:upto], self.instructions)


@dataclass(frozen=True, slots=True)
class Continued:
    """A prompt matched with the conversation it continues.

    `kept` maps positions among the prompt's messages to entries, `removed` are the entries it does not repeat;
    `certain` is False when another conversation with the same history could have been meant.
    """

    conversation: Conversation
    kept: dict[int, Entry]
    removed: list[Entry]
    certain: bool = True


_lock = threading.Lock()
_known: OrderedDict[str, Conversation] = OrderedDict()
_replies: OrderedDict[str, list[str]] = OrderedDict()  # key of a reply, or its id -> ids of the conversations it is in
_sizes: dict[str, int] = {}
_characters = 0  # of text in all of them
_recent: ContextVar[str] = ContextVar("memtrace_recent_conversation", default="")


def key_of(role: str, text: str) -> str:
    """What tells a message from others of its conversation."""
    return content_digest(f"{role}\n{text}")


def instructions_key(messages: Sequence[Message]) -> str:
    """Key of the system messages of a prompt."""
    return content_digest("\n".join(message.text for message in messages if message.role in INSTRUCTIONS))


def find(request: Request) -> Continued | None:
    """Find the conversation that a prompt continues, None when it begins one (or comes from another process)."""
    keys = [key_of(m.role, m.text) for m in request.messages]
    with _lock:
        if request.conversation or request.previous_id:
            named = request.conversation or next(iter(_replies.get(request.previous_id, ())), "")
            conversation = _known.get(named)
            if conversation is None:
                return None
            if request.previous_id:  # the model's side holds the history: nothing was trimmed
                return Continued(conversation, {}, [])
            return _aligned(conversation, request.messages, keys)
        for message, key in zip(reversed(request.messages), reversed(keys), strict=True):
            if message.role == "assistant" and key in _replies:
                return _best(_replies[key], request.messages, keys)
    return None


def begin(request: Request) -> Conversation:
    """Start a conversation; it is found again once it has an answer."""
    mark = secrets.token_hex(8)
    named = request.conversation
    return Conversation(named or mark, f"{named}.{mark[:8]}" if named else mark)


def remember(conversation: Conversation, reply_key: str, reply_id: str = "") -> None:
    """Make a conversation findable by its newest reply."""
    global _characters
    del conversation.entries[: max(0, len(conversation.entries) - _ENTRIES)]
    with _lock:
        _characters += conversation.size - _sizes.get(conversation.id, 0)
        _sizes[conversation.id] = conversation.size
        _known[conversation.id] = conversation
        _known.move_to_end(conversation.id)
        for key in filter(None, (reply_key, reply_id)):
            ids = _replies.setdefault(key, [])
            if conversation.id in ids:
                ids.remove(conversation.id)
            ids.append(conversation.id)
            del ids[:-16]
            _replies.move_to_end(key)
        while len(_known) > 1 and (len(_known) > _CONVERSATIONS or _characters > _CHARACTERS):
            forgotten, _ = _known.popitem(last=False)
            _characters -= _sizes.pop(forgotten, 0)
            note_drop("conversations")
        while len(_replies) > 4 * _CONVERSATIONS:
            _replies.popitem(last=False)
    _recent.set(conversation.id)


def _best(ids: Sequence[str], messages: Sequence[Message], keys: Sequence[str]) -> Continued | None:
    """Of the conversations that hold a reply, the one with most of the prompt, rather than a fork of one; of equals
    this context's, then the newest. Only this context's is certain: others may have gone the same way."""
    found = [_aligned(_known[id], messages, keys) for id in reversed(ids) if id in _known]
    found = [one for one in found if one.conversation.id == _recent.get() or _tells(one.kept, messages)]
    if not found:
        return None
    asked = instructions_key(messages)
    fits = [(one.conversation.id in _known, len(one.kept), one.conversation.instructions == asked) for one in found]
    equal = [one for one, fit in zip(found, fits, strict=True) if fit == max(fits)]
    recent = [one for one in equal if one.conversation.id == _recent.get()]
    return recent[0] if recent else replace(equal[0], certain=False)


def _tells(kept: Mapping[int, Entry], messages: Sequence[Message]) -> bool:
    """Whether what a prompt repeats is enough to know a conversation by: a question with its reply, or a long reply.

    A reply that follows a message of which the conversation knows nothing was given to somebody else.
    """
    for place in kept:
        if messages[place].role != "assistant":
            continue
        before = next((p for p in range(place - 1, -1, -1) if messages[p].role not in INSTRUCTIONS), None)
        if before in kept or (before is None and len(messages[place].text) > _REPEATED_BY_CHANCE):
            return True
    return False


def _aligned(conversation: Conversation, messages: Sequence[Message], keys: Sequence[str]) -> Continued:
    """Match a prompt with the entries in order. One that drops the newest ones is a fork, not a trimmed history."""
    entries, at = conversation.entries, 0
    places: dict[str, list[int]] = {}
    for index, entry in enumerate(entries):
        places.setdefault(entry.key, []).append(index)
    kept: dict[int, Entry] = {}
    taken: set[int] = set()
    for place, key in enumerate(keys):
        asked = place == len(keys) - 1 and messages[place].role == "user"  # equal to an earlier question or not
        if asked or (messages[place].role in INSTRUCTIONS and key not in places):  # a summary may stand there
            continue
        known = places.get(key, ())
        after = bisect_left(known, at)
        if after < len(known):
            kept[place] = entries[known[after]]
            taken.add(known[after])
            at = known[after] + 1
    removed = [entry for index, entry in enumerate(entries[:at] if taken else entries) if index not in taken]
    return Continued(conversation.fork(at) if taken and at < len(entries) else conversation, kept, removed)


def forget() -> None:
    """Drop every conversation (and the lock, which a fork may have left held)."""
    global _lock, _characters
    _lock, _characters = threading.Lock(), 0
    _known.clear()
    _replies.clear()
    _sizes.clear()
    _recent.set("")


@after_fork
def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # the parent may have held it
