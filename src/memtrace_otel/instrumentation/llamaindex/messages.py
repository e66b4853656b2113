"""Which message is which: LlamaIndex gives messages no ids, and equal ones said twice are two.

What is put into a chat memory is said anew. What a chat store tells later is recognised by its place in the queue.
"""

from __future__ import annotations

import secrets
import threading
from collections import Counter, OrderedDict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from memtrace_otel.instrumentation.llamaindex.nodes import message_ref, message_text

_QUEUES = 1024
_MESSAGES = 10_000


@dataclass(frozen=True, slots=True)
class Message:
    """One message with a text; `ref` is its own, whoever else said the same."""

    ref: str
    text: str


@dataclass(frozen=True, slots=True)
class _Place:
    """A place in a queue: the message that stands there, and what its text is recognised by."""

    ref: str
    key: int


def said_now(messages: Iterable[Any]) -> list[Message]:
    """Messages said just now; those without text (tool calls) are left out."""
    return [Message(f"{message_ref(text)}.{secrets.token_hex(8)}", text) for text in _texts(messages)]


class Queues:
    """The active messages of conversations, oldest first, as far as this process knows; the conversation that was
    asked for longest ago is forgotten first."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queues: OrderedDict[str, list[_Place]] = OrderedDict()

    def append(self, name: str, messages: Iterable[Any]) -> list[Message]:
        """Messages that are put at the end of a queue."""
        said = said_now(messages)
        with self._lock:
            queue = self._queue(name)
            queue += _places(said)
            del queue[:-_MESSAGES]
        return said

    def replace(self, name: str, messages: Iterable[Any]) -> list[Message]:
        """Messages that make the queue from now on: those that stood in it stay what they are."""
        said = said_now(messages)
        with self._lock:
            queue = self._queue(name)
            refs = _aligned(queue, [message.text for message in said])
            found = [Message(ref or message.ref, message.text) for ref, message in zip(refs, said, strict=True)]
            queue[:] = _places(found)
        return found

    def recognise(self, name: str, messages: Iterable[Any]) -> list[Message]:
        """The messages that a chat store tells. Those from before this process go by their text and their number among
        equal ones."""
        texts, earlier = _texts(messages), Counter[str]()
        found: list[Message] = []
        with self._lock:
            queue = self._queue(name)
            for ref, text in zip(_aligned(queue, texts), texts, strict=True):
                if not ref:
                    earlier[text] += 1
                    ref = message_ref(text) + (f".{earlier[text]}" if earlier[text] > 1 else "")
                found.append(Message(ref, text))
            if earlier:
                queue[:] = _places(found)
        return found

    def shorten(self, name: str, removed: int) -> None:
        """Forget the oldest messages of a queue."""
        with self._lock:
            del self._queue(name)[:removed]

    def _queue(self, name: str) -> list[_Place]:
        queue = self._queues.setdefault(name, [])
        self._queues.move_to_end(name)
        while len(self._queues) > _QUEUES:
            self._queues.popitem(last=False)
        return queue


def _texts(messages: Iterable[Any]) -> list[str]:
    return [text for text in map(message_text, messages) if text]


def _places(messages: Sequence[Message]) -> list[_Place]:
    return [_Place(message.ref, hash(message.text)) for message in messages[-_MESSAGES:]]


def _aligned(queue: Sequence[_Place], texts: Sequence[str]) -> list[str]:
    """The ref of each text, '' for one that is not known: what both have at the end, and at the start, is the same; the
    longer of these goes first."""
    known, keys = [place.key for place in queue], [hash(text) for text in texts]
    start, end = _common(known, keys), _common(known[::-1], keys[::-1])
    most = min(len(known), len(keys))
    if start > end:
        end = min(end, most - start)
    else:
        start = min(start, most - end)
    refs = [place.ref for place in queue]
    return refs[:start] + [""] * (len(texts) - start - end) + refs[len(refs) - end :]


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many elements at the start are the same."""
    length = min(len(one), len(other))
    return next((index for index in range(length) if one[index] != other[index]), length)
