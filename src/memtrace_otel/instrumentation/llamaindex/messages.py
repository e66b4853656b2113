"""Identity of chat messages: LlamaIndex gives messages no ids, and equal messages are two messages.

A new message of a chat memory gets a new ref. A reply gets the ref of the recorded answer with the same text. A message
that a chat store returns later is found by its text.
"""

from __future__ import annotations

import secrets
import threading
from collections import Counter, OrderedDict, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from memtrace_otel.capture import Operation
from memtrace_otel.capture.fork import new_lock_after_fork
from memtrace_otel.capture.guard import note_drop
from memtrace_otel.instrumentation.llamaindex.nodes import message_ref, message_text
from memtrace_otel.model import ref_kind
from memtrace_otel.semconv import RefKind, Role

_CONVERSATIONS, _MESSAGES = 256, 1000
_ROLES: Mapping[str, str] = {RefKind.MESSAGE: Role.MESSAGE, RefKind.ANSWER: Role.ANSWER}


@dataclass(frozen=True, slots=True)
class Message:
    """One message with a text. `origin`: the operation that made the answer or summary, else ''."""

    ref: str
    text: str
    origin: str = ""

    def read_by(self, operation: Operation, role: str = "") -> int:
        """Record the message as an input of `operation`; returns the index of the input."""
        role = role or _ROLES.get(ref_kind(self.ref), Role.OTHER)
        return operation.read(self.ref, role=role, content=self.text, origin=self.origin)


def said_now(messages: Iterable[Any]) -> list[Message]:
    """New messages; messages without text (tool calls) are left out."""
    return [Message(f"{message_ref(text)}.{secrets.token_hex(8)}", text) for text in _texts(messages)]


def is_reply(message: Any) -> bool:
    """Whether the role of a message is the assistant."""
    role = getattr(message, "role", "")
    return getattr(role, "value", role) == "assistant"


class Messages:
    """The messages that this process has seen, by conversation. The least recently used conversation is forgotten
    first.

    Of equal texts the newest message in a queue is the newest known message. A message of another process gets a ref of
    its text and its number among the unknown equal texts.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[str, list[tuple[int, str, str]]] = OrderedDict()  # hash of the text, ref, origin
        self._lock = threading.RLock()
        new_lock_after_fork(self)

    def append(self, name: str, messages: Iterable[Any], answers: Sequence[Message] = ()) -> list[Message]:
        """Name messages that are put into a conversation.

        A reply is the answer of `answers` with the same text, unless the conversation has the answer. With several such
        answers the reply is a new message.
        """
        found: list[Message] = []
        for message in messages:
            for one in said_now([message]):
                found.append(self._answer(name, one, answers) if is_reply(message) else one)
                self.remember(name, found[-1])
        return found

    def replace(self, name: str, messages: Iterable[Any]) -> list[Message]:
        """Set the messages of a conversation; known messages keep their refs."""
        said = said_now(messages)
        grown = len(said) > len(self._known.get(name, ()))
        places = self._match(name, [one.text for one in said], oldest_first=grown)
        found = [known or one for known, one in zip(places, said, strict=True)]
        with self._lock:
            self._known[name] = []
        for message in found:
            self.remember(name, message)
        return found

    def remember(self, name: str, message: Message) -> None:
        """Add a message to a conversation."""
        with self._lock:
            known = self._known.setdefault(name, [])
            known.append((hash(message.text), message.ref, message.origin))
            del known[:-_MESSAGES]
            self._known.move_to_end(name)
            while len(self._known) > _CONVERSATIONS:
                self._known.popitem(last=False)
                note_drop("llamaindex.queues")

    def recognise(self, name: str, messages: Iterable[Any]) -> list[Message]:
        """The messages that a chat store returns, oldest first."""
        texts, numbers = _texts(messages), Counter[str]()
        found: list[Message] = []
        for text, known in zip(texts, self._match(name, texts), strict=True):
            if known is None:
                numbers[text] += 1
                number = f".{numbers[text]}" if numbers[text] > 1 else ""
                known = Message(f"{message_ref(text)}{number}", text)
            found.append(known)
        return found

    def _match(self, name: str, texts: Sequence[str], *, oldest_first: bool = False) -> list[Message | None]:
        """The known message of each text, None for an unknown text; of equal texts the newest (oldest) ones first."""
        left: defaultdict[int, list[tuple[str, str]]] = defaultdict(list)
        with self._lock:
            for key, ref, origin in self._known.get(name, ()):
                left[key].append((ref, origin))
        found: list[Message | None] = []
        for text in texts if oldest_first else reversed(texts):
            same = left[hash(text)]
            known = same.pop(0 if oldest_first else -1) if same else None
            found.append(Message(known[0], text, known[1]) if known else None)
        return found if oldest_first else found[::-1]

    def _answer(self, name: str, reply: Message, answers: Sequence[Message]) -> Message:
        held = {ref for _, ref, _ in self._known.get(name, ())}
        equal = [one for one in answers if one.text.strip() == reply.text.strip() and one.ref not in held]
        return replace(equal[0], text=reply.text) if len(equal) == 1 else reply


def _texts(messages: Iterable[Any]) -> list[str]:
    return [text for text in map(message_text, messages) if text]
