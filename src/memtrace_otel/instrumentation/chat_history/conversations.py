"""The conversations of this process, and the search for the reply that a prompt continues.

A chat API has no memory, so every call repeats the history. A prompt continues the state of the conversation after the
newest reply that the prompt repeats. A state never changes: concurrent calls that continue one state are branches.
"""

from __future__ import annotations

import secrets
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import islice

from opentelemetry import baggage

from memtrace_otel.capture import recall, scope_id
from memtrace_otel.capture.fork import after_fork, new_lock_after_fork
from memtrace_otel.capture.guard import note_drop
from memtrace_otel.instrumentation.chat_history.alignment import (
    EXCHANGE,
    LONG_REPLY,
    REPEATED_BY_CHANCE,
    Conversation,
    Entry,
    Match,
    Place,
    aligned,
    best_match,
    key_of,
)
from memtrace_otel.instrumentation.chat_history.messages import INSTRUCTIONS, Message, Request

_STATES = 4096
_ENTRIES = 4096
_MAY_BE_SUMMARISED = 256
_CHARACTERS = 8_000_000
_REPLY, _NEWEST = "reply", "newest"

Quoted = Callable[[], Sequence[recall.Answer]]
"""Returns the replies of this turn that the prompt quotes."""

_lock = threading.RLock()
new_lock_after_fork(sys.modules[__name__])
_known: OrderedDict[str, Conversation] = OrderedDict()  # by state
_states: OrderedDict[tuple[str, ...], list[str]] = OrderedDict()  # states by the keys that find them, newest last
_characters = 0  # total size of the states


def here() -> Place:
    """The session and the trace of this context."""
    return Place(_in_baggage("gen_ai.conversation.id", "session.id"), recall.trace_here())


def user_here() -> str:
    """The user in the baggage, '' for none."""
    return _in_baggage("user.id", "enduser.id")


def _in_baggage(*keys: str) -> str:
    return next((str(value) for key in keys if (value := baggage.get_baggage(key))), "")


def find(request: Request, place: Place, quoted: Quoted) -> tuple[Match | None, bool]:
    """Find the state that a prompt continues, and whether several conversations match equally.

    Returns no match for a new conversation, and if several match.
    """
    messages = request.messages
    keys = [key_of(message) for message in messages]
    with _lock:
        named = _states_for(request, _NEWEST) if request.conversation else []
        newest = next(iter(_states_by((_REPLY, request.previous_id)) or named), None)
        if request.held_there:  # the prompt holds new messages only
            return newest and Match(newest, {}, [], newest.certain), False
        for at in range(len(messages) - 1, -1, -1):
            states = _states_for(request, keys[at]) if messages[at].role == "assistant" else []
            said = [key for key, m in zip(keys[: at + 1], messages, strict=False) if m.role not in INSTRUCTIONS]
            others = {one.id for one in states if not one.begins_with(said)}
            if states := [one for one in states if one.id in others]:
                chosen = _choose([aligned(state, keys[: at + 1]) for state in states], request, place, quoted)
                return chosen, chosen is None
        before = len(keys) - bool(messages and messages[-1].role == "user")  # the question may equal an earlier one
        if newest or request.conversation:
            return newest and aligned(newest, keys[:before]), False
        summarised = _summarised(request, messages[:before], quoted)
        if len(summarised) != 1:
            return None, bool(summarised)
        return replace(aligned(summarised[0], keys[:before]), certain=False), False


def begin(request: Request) -> Conversation:
    """Start a conversation. `remember` makes the conversation known."""
    named, user, mark = request.conversation, request.user, secrets.token_hex(8)
    if not named:
        return Conversation(mark, mark, scope_id("conversation", run=mark), user)
    scope = scope_id("conversation", run=named, user=user or None)
    return Conversation(named, f"{named}.{mark[:8]}", scope, user)


def remember(conversation: Conversation, reply: Sequence[Entry], request: Request, reply_id: str) -> None:
    """Keep the state after a reply, by the id, the messages and the conversation name of the reply."""
    user = conversation.user or request.user
    conversation = replace(conversation, entries=conversation.entries[-_ENTRIES:], user=user)
    found_by = [*(entry.key for entry in reply), *[_NEWEST] * bool(request.conversation)]
    with _lock:
        _put(conversation)
        for way in (*[(_REPLY, reply_id)] * bool(reply_id), *(_way(request, by) for by in found_by)):
            states = _states.setdefault(way, [])
            states.append(conversation.state)
            del states[:-16]
            _states.move_to_end(way)
        while len(_known) > 1 and (len(_known) > _STATES or _characters > _CHARACTERS):
            _forget_oldest()
        while len(_states) > 4 * _STATES:
            _states.popitem(last=False)


def continue_first(conversation: Conversation) -> bool:
    """Note that a call continues this state. Returns whether the call is the first; later calls are branches."""
    with _lock:
        known = _known.get(conversation.state)
        if known is not None:
            _known[conversation.state] = replace(known, continued=True)
        return known is not None and not known.continued


@after_fork
def forget() -> None:
    """Drop every conversation. A child process begins new ones: its refs must not equal those of the parent."""
    global _lock, _characters
    _lock, _characters = threading.RLock(), 0
    _known.clear()
    _states.clear()


def _states_for(request: Request, by: str) -> list[Conversation]:
    """States of the request's conversation name and user, newest first."""
    return _states_by(_way(request, by))


def _way(request: Request, by: str) -> tuple[str, ...]:
    """The key of the states of a request. All users share a conversation that the provider holds."""
    return request.conversation, "" if request.held_there else request.user, by


def _states_by(way: tuple[str, ...]) -> list[Conversation]:
    return [_known[state] for state in reversed(_states.get(way, ())) if state in _known]


def _choose(matches: list[Match], request: Request, place: Place, quoted: Quoted) -> Match | None:
    """The best of the states that end with one reply.

    A long reply to an unknown question identifies its conversation, but not for certain. A short reply does only if the
    prompt quotes a summary of the conversation.
    """
    strengths = [EXCHANGE if request.conversation else one.strength(request.messages) for one in matches]
    best = max(strengths)
    matches = [one for one, strength in zip(matches, strengths, strict=True) if strength == best]
    if best != EXCHANGE:
        matches = [replace(one, certain=False) for one in matches]
        replies = quoted()
        summarised = [one for one in matches if any(one.conversation.was_given_to(reply) for reply in replies)]
        if not (summarised or best == LONG_REPLY):
            return None
        matches = summarised or matches
    return best_match(matches, request.messages, place)


def _summarised(request: Request, messages: Sequence[Message], quoted: Quoted) -> list[Conversation]:
    """Conversations that these messages may summarise: a long reply is quoted whose call was given the conversation."""
    text = "\n".join(message.text for message in messages)
    replies = [one for one in quoted() if len(one.text) > REPEATED_BY_CHANCE and recall.quotes(text, one.text)]
    newest = islice(reversed(_known.values()), _MAY_BE_SUMMARISED if replies else 0)
    waiting = [one for one in newest if (one.name, one.user, one.continued) == ("", request.user, False)]
    return [one for one in waiting if any(one.was_given_to(reply) for reply in replies)]


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
        note_drop("conversations")
