"""Conversations whose memory is their own history: which earlier call a prompt goes on from, and what has changed.

A chat API has no memory of its own, so every call repeats what the application wants remembered. A prompt that repeats
the last reply of a known conversation continues it; what it no longer repeats was trimmed. Only digests are kept.
"""

from __future__ import annotations

import os
import secrets
import threading
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from itertools import count

from memtrace_otel.capture import scope_id
from memtrace_otel.instrumentation.openai.calls import INSTRUCTIONS, Message, Request
from memtrace_otel.model import content_digest, make_ref
from memtrace_otel.semconv import RefKind

_CONVERSATIONS = 1024
_ENTRIES = 4096


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
    """The history of one conversation as of its newest call; `instructions` is the key of its system messages."""

    id: str
    entries: list[Entry] = field(default_factory=list[Entry])
    instructions: str = ""
    numbers: Iterator[int] = field(default_factory=lambda: count(1))

    @property
    def scope(self) -> str:
        """Memory scope of the conversation."""
        return scope_id("conversation", run=self.id)

    def new_entry(self, role: str, text: str, answered: str = "") -> Entry:
        """An entry with a ref of its own: equal messages of two turns stay two."""
        ref = make_ref(RefKind.STATE, f"{self.id}.{next(self.numbers)}")
        return Entry(key_of(role, text), ref, text=text, answered=answered)

    def fork(self, upto: int) -> Conversation:
        """A conversation of its own that shares the history before `upto` (an edited question, a second try)."""
        return Conversation(new_id(), self.entries[:upto], self.instructions)


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
_recent: ContextVar[str] = ContextVar("memtrace_recent_conversation", default="")


def key_of(role: str, text: str) -> str:
    """What tells a message from others of its conversation."""
    return content_digest(f"{role}\n{text}")


def instructions_key(messages: Sequence[Message]) -> str:
    """Key of the system messages of a prompt."""
    return content_digest("\n".join(message.text for message in messages if message.role in INSTRUCTIONS))


def new_id() -> str:
    """An id for a conversation that the application has not named."""
    return secrets.token_hex(8)


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
    return Conversation(request.conversation or new_id())


def remember(conversation: Conversation, reply_key: str, reply_id: str = "") -> None:
    """Make a conversation findable by its newest reply."""
    del conversation.entries[: max(0, len(conversation.entries) - _ENTRIES)]
    with _lock:
        _known[conversation.id] = conversation
        _known.move_to_end(conversation.id)
        for key in filter(None, (reply_key, reply_id)):
            ids = _replies.setdefault(key, [])
            if conversation.id in ids:
                ids.remove(conversation.id)
            ids.append(conversation.id)
            del ids[:-16]
            _replies.move_to_end(key)
        while len(_known) > _CONVERSATIONS:
            _known.popitem(last=False)
        while len(_replies) > 4 * _CONVERSATIONS:
            _replies.popitem(last=False)
    _recent.set(conversation.id)


def _best(ids: Sequence[str], messages: Sequence[Message], keys: Sequence[str]) -> Continued | None:
    """Of the conversations that hold a reply, the one with most of the prompt, rather than a fork of one; of equals
    this context's, then the newest."""
    found = [_aligned(_known[id], messages, keys) for id in reversed(ids) if id in _known]
    if not found:
        return None
    fits = [(len(one.kept), one.conversation.id in _known) for one in found]
    equal = [one for one, fit in zip(found, fits, strict=True) if fit == max(fits)]
    recent = [one for one in equal if one.conversation.id == _recent.get()]
    best = (recent or equal)[0]
    return best if recent or len(equal) == 1 else replace(best, certain=False)


def _aligned(conversation: Conversation, messages: Sequence[Message], keys: Sequence[str]) -> Continued:
    """Match a prompt with the entries in order. One that drops the newest ones is a fork, not a trimmed history."""
    entries, at = conversation.entries, 0
    kept: dict[int, Entry] = {}
    taken: set[int] = set()
    for place, key in enumerate(keys):
        asked = place == len(keys) - 1 and messages[place].role == "user"  # equal to an earlier question or not
        if asked or messages[place].role in INSTRUCTIONS:
            continue
        match = next((i for i in range(at, len(entries)) if entries[i].key == key), None)
        if match is not None:
            kept[place] = entries[match]
            taken.add(match)
            at = match + 1
    if at < len(entries) and taken:
        return Continued(conversation.fork(at), kept, [entry for i, entry in enumerate(entries[:at]) if i not in taken])
    return Continued(conversation, kept, [entry for i, entry in enumerate(entries) if i not in taken])


def forget() -> None:
    """Drop every conversation (and the lock, which a fork may have left held)."""
    global _lock
    _lock = threading.Lock()
    _known.clear()
    _replies.clear()


def _after_fork() -> None:
    global _lock
    _lock = threading.Lock()  # the parent may have held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)
