"""Identity of chat messages: LlamaIndex gives messages no ids, and two equal messages are two.

A message that is put into a chat memory gets a new ref; a reply gets the ref of the recorded answer with its text. A
message that a chat store returns later is recognised by its text and its place in the queue.
"""

from __future__ import annotations

import secrets
import threading
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from memtrace_otel.capture import Operation
from memtrace_otel.capture.fork import new_lock_after_fork
from memtrace_otel.capture.guard import note_drop
from memtrace_otel.instrumentation.llamaindex.nodes import message_ref, message_text
from memtrace_otel.model import ref_kind
from memtrace_otel.semconv import RefKind, Role

_QUEUES = 1024
_MESSAGES = 10_000
_PLACES = 100_000  # of all queues, about 17 MB
_ROLES: Mapping[str, str] = {RefKind.MESSAGE: Role.MESSAGE, RefKind.ANSWER: Role.ANSWER}


@dataclass(frozen=True, slots=True)
class Message:
    """One message with a text. `origin`: the operation of the answer or summary that the message is, else ''."""

    ref: str
    text: str
    origin: str = ""

    def read_by(self, operation: Operation, role: str = "") -> int:
        """Record the message as an input of `operation`; returns the index of the input."""
        role = role or _ROLES.get(ref_kind(self.ref), Role.OTHER)
        return operation.read(self.ref, role=role, content=self.text, origin=self.origin)


@dataclass(frozen=True, slots=True)
class _Place:
    """A place in a queue: the message there, by a hash of its text."""

    ref: str
    key: int
    origin: str


def said_now(messages: Iterable[Any]) -> list[Message]:
    """New messages; messages without text (tool calls) are left out."""
    return [Message(f"{message_ref(text)}.{secrets.token_hex(8)}", text) for text in _texts(messages)]


def is_reply(message: Any) -> bool:
    """Whether the role of a message is the assistant."""
    role = getattr(message, "role", "")
    return getattr(role, "value", role) == "assistant"


class Queues:
    """The active messages of conversations, oldest first. The least recently used conversation is forgotten first."""

    def __init__(self) -> None:
        self._queues: OrderedDict[str, list[_Place]] = OrderedDict()
        self._lock = threading.RLock()
        new_lock_after_fork(self)

    def append(self, name: str, messages: Iterable[Any], answers: Sequence[Message] = ()) -> list[Message]:
        """Put messages at the end of a queue.

        A reply is the one of `answers` that has its text and is not in the queue. With several such answers the reply
        is a new message.
        """
        said = [(one, is_reply(message)) for message in messages for one in said_now([message])]
        with self._queue(name) as queue:
            found: list[Message] = []
            for one, replies in said:
                found.append(_answer(one, answers, queue) if replies and answers else one)
                queue += _places(found[-1:])
        return found

    def replace(self, name: str, messages: Iterable[Any]) -> list[Message]:
        """Set the messages of a queue; messages that were in the queue keep their refs."""
        said = said_now(messages)
        with self._queue(name) as queue:
            places = _match(queue, [message.text for message in said])
            found = [_message(place, one.text) if place else one for place, one in zip(places, said, strict=True)]
            queue[:] = _places(found)
        return found

    def keep(self, name: str, messages: Sequence[Message]) -> None:
        """Set a queue to known messages."""
        with self._queue(name) as queue:
            queue[:] = _places(messages)

    def recognise(self, name: str, messages: Iterable[Any], *, archived: bool = False) -> list[Message]:
        """The messages that a chat store returns.

        A message of another process gets a ref of its text and its number among equal texts. With `archived` the store
        also returns messages that have left the queue.
        """
        texts = _texts(messages)
        with self._queue(name) as queue:
            places, taken = _match(queue, texts, archived=archived), {place.ref for place in queue}
            numbers = Counter[str]()
            found = [
                _message(place, text) if place else Message(_numbered(text, numbers, taken), text)
                for place, text in zip(places, texts, strict=True)
            ]
            if not all(places) and not archived:
                queue[:] = _places(found)
        return found

    def shorten(self, name: str, removed: int) -> None:
        """Forget the oldest messages of a queue."""
        with self._queue(name) as queue:
            del queue[:removed]

    @contextmanager
    def _queue(self, name: str) -> Generator[list[_Place]]:
        """A queue for reads and changes."""
        with self._lock:
            queue = self._queues.setdefault(name, [])
            self._queues.move_to_end(name)
            yield queue
            del queue[:-_MESSAGES]
            places = sum(map(len, self._queues.values()))
            while len(self._queues) > _QUEUES or places > _PLACES:
                forgotten = self._queues.popitem(last=False)[1]
                places -= len(forgotten)
                if forgotten:
                    note_drop("llamaindex.queues", system="llamaindex")


def _texts(messages: Iterable[Any]) -> list[str]:
    return [text for text in map(message_text, messages) if text]


def _places(messages: Sequence[Message]) -> list[_Place]:
    return [_Place(message.ref, hash(message.text), message.origin) for message in messages[-_MESSAGES:]]


def _message(place: _Place, text: str) -> Message:
    return Message(place.ref, text, place.origin)


def _answer(reply: Message, answers: Sequence[Message], queue: Sequence[_Place]) -> Message:
    held = {place.ref for place in queue}
    equal = [one for one in answers if one.text.strip() == reply.text.strip() and one.ref not in held]
    return replace(equal[0], text=reply.text) if len(equal) == 1 else reply


def _match(queue: Sequence[_Place], texts: Sequence[str], *, archived: bool = False) -> list[_Place | None]:
    """The place of each text in a queue, None for an unknown text.

    Of equal texts the oldest are matched first in a queue that has grown, else the newest.
    """
    grown = len(texts) > len(queue) and not archived
    left: defaultdict[int, list[_Place]] = defaultdict(list)
    for place in reversed(queue) if grown else queue:
        left[place.key].append(place)
    keys = [hash(text) for text in (texts if grown else reversed(texts))]
    found = [left[key].pop() if left[key] else None for key in keys]
    return found if grown else found[::-1]


def _numbered(text: str, numbers: Counter[str], taken: set[str]) -> str:
    """The next ref of a text that is not taken."""
    while True:
        numbers[text] += 1
        ref = message_ref(text) + (f".{numbers[text]}" if numbers[text] > 1 else "")
        if ref not in taken:
            return ref
