"""Which message is which: LlamaIndex gives messages no ids, and equal ones said twice are two.

What is put into a chat memory is said anew, but for a reply that this process has recorded as an answer: it is that.
What a chat store tells later is recognised by its place in the queue.
"""

from __future__ import annotations

import secrets
import sys
import threading
from collections import Counter, OrderedDict
from collections.abc import Container, Generator, Iterable, Mapping, Sequence
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
_lock = threading.RLock()
new_lock_after_fork(sys.modules[__name__])


@dataclass(frozen=True, slots=True)
class Message:
    """One message with a text; `ref` is its own, whoever else said the same. `origin` is that of the answer which a
    reply is, or of what has summarised others as this; '' when it is none of ours."""

    ref: str
    text: str
    origin: str = ""

    def read_by(self, operation: Operation, role: str = "") -> int:
        """Record it as an input of `operation`."""
        role = role or _ROLES.get(ref_kind(self.ref), Role.OTHER)
        return operation.read(self.ref, role=role, content=self.text, origin=self.origin)


@dataclass(frozen=True, slots=True)
class _Place:
    """A place in a queue: the message that stands there, and what its text is recognised by."""

    ref: str
    key: int
    origin: str


def said_now(messages: Iterable[Any]) -> list[Message]:
    """Messages said just now; those without text (tool calls) are left out."""
    return [Message(f"{message_ref(text)}.{secrets.token_hex(8)}", text) for text in _texts(messages)]


def is_reply(message: Any) -> bool:
    """Whether the assistant said it."""
    role = getattr(message, "role", "")
    return getattr(role, "value", role) == "assistant"


class Queues:
    """The active messages of conversations, oldest first, as far as this process knows. Bounded in number and in all;
    the conversation that was asked for longest ago is forgotten first."""

    def __init__(self) -> None:
        self._queues: OrderedDict[str, list[_Place]] = OrderedDict()

    def append(self, name: str, messages: Iterable[Any], answers: Sequence[Message] = ()) -> list[Message]:
        """Messages that are put at the end of a queue. A reply is the one of `answers` that has its text and is not in
        the queue yet; where several could be meant it is none."""
        said = [(one, is_reply(message)) for message in messages for one in said_now([message])]
        with self._queue(name) as queue:
            found: list[Message] = []
            for one, replies in said:
                found.append(_answer(one, answers, queue) if replies and answers else one)
                queue += _places(found[-1:])
        return found

    def replace(self, name: str, messages: Iterable[Any]) -> list[Message]:
        """Messages that make the queue from now on: those that stood in it stay what they are."""
        said = said_now(messages)
        with self._queue(name) as queue:
            refs = _aligned(queue, [message.text for message in said])
            made = [ref or message.ref for ref, message in zip(refs, said, strict=True)]
            found = _found(queue, made, [message.text for message in said])
            queue[:] = _places(found)
        return found

    def keep(self, name: str, messages: Sequence[Message]) -> None:
        """Messages that are known make the queue from now on."""
        with self._queue(name) as queue:
            queue[:] = _places(messages)

    def recognise(self, name: str, messages: Iterable[Any], *, archived: bool = False) -> list[Message]:
        """The messages that a chat store tells. Those put in elsewhere go by their text and their number among equal
        ones; a number that is taken is another's. With `archived` there may be some that have left the queue."""
        texts = _texts(messages)
        with self._queue(name) as queue:
            refs = _aligned(queue, texts)
            known = all(refs)
            if not known:
                _find_moved(refs, queue, texts)
                _number(refs, {place.ref for place in queue}, texts)
            found = _found(queue, refs, texts)
            if not known and not archived:
                queue[:] = _places(found)
        return found

    def shorten(self, name: str, removed: int) -> None:
        """Forget the oldest messages of a queue."""
        with self._queue(name) as queue:
            del queue[:removed]

    @contextmanager
    def _queue(self, name: str) -> Generator[list[_Place]]:
        """A queue to look at and to change."""
        with _lock:
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


def _answer(reply: Message, answers: Sequence[Message], queue: Sequence[_Place]) -> Message:
    held = {place.ref for place in queue}
    equal = [one for one in answers if one.text.strip() == reply.text.strip() and one.ref not in held]
    return replace(equal[0], text=reply.text) if len(equal) == 1 else reply


def _found(queue: Sequence[_Place], refs: Sequence[str], texts: Sequence[str]) -> list[Message]:
    origins = {place.ref: place.origin for place in queue if place.origin}
    return [Message(ref, text, origins.get(ref, "")) for ref, text in zip(refs, texts, strict=True)]


def _aligned(queue: Sequence[_Place], texts: Sequence[str]) -> list[str]:
    """The ref of each text, '' for one that is not known: what both have at the end, and at the start, is the same; the
    longer of these goes first. Of two as long, a queue that has grown has kept its start, another its end."""
    known, keys = [place.key for place in queue], [hash(text) for text in texts]
    start, end = _common(known, keys), _common(known[::-1], keys[::-1])
    most = min(len(known), len(keys))
    if start > end or (start == end and len(keys) > len(known)):
        end = min(end, most - start)
    else:
        start = min(start, most - end)
    refs = [place.ref for place in queue]
    return refs[:start] + [""] * (len(texts) - start - end) + refs[len(refs) - end :]


def _find_moved(refs: list[str], queue: Sequence[_Place], texts: Sequence[str]) -> None:
    """Fill in places of the queue with the same text that nothing stands for yet, the newest first."""
    used, left = set(refs), dict[int, list[str]]()
    for place in queue:
        if place.ref not in used:
            left.setdefault(place.key, []).append(place.ref)
    for index in reversed(range(len(refs))):
        if not refs[index] and (same := left.get(hash(texts[index]))):
            refs[index] = same.pop()


def _number(refs: list[str], taken: Container[str], texts: Sequence[str]) -> None:
    """Fill in what still has no ref."""
    numbers = Counter[str]()
    for index, text in enumerate(texts):
        while not refs[index]:
            numbers[text] += 1
            ref = message_ref(text) + (f".{numbers[text]}" if numbers[text] > 1 else "")
            refs[index] = "" if ref in taken else ref


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many elements at the start are the same."""
    length = min(len(one), len(other))
    return next((index for index in range(length) if one[index] != other[index]), length)
