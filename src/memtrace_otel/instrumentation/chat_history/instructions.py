"""The system messages of a prompt: whether one of them says what those before did not."""

from __future__ import annotations

import re
from array import array
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from memtrace_otel.instrumentation.chat_history.messages import INSTRUCTIONS, Message
from memtrace_otel.model import content_digest

_END_OF_PART = re.compile(r"[.!?。！？\n]\s*")
_PARTS = 256
"""Of one message, 8 bytes each: what comes after them is one more."""


@dataclass(frozen=True, slots=True)
class Instructions:
    """The system messages of one prompt. `key` tells them from others; `parts` are the hashes of their lines and
    sentences."""

    key: str = ""
    parts: array[int] = field(default_factory=lambda: array("q"))

    def after(self, messages: Sequence[Message]) -> Instructions:
        """Those of the next prompt: these where they are equal."""
        key = instructions_key(messages)
        if key == self.key:
            return self
        texts = [message.text for message in messages if message.role in INSTRUCTIONS]
        return Instructions(key, array("q", {part for text in texts for part in _parts_of(text)}))

    def hold(self, text: str) -> bool:
        """Whether everything that a system message says was said in these: it is one of them, or what is left of it."""
        known = set(self.parts)
        return all(part in known for part in _parts_of(text))


def instructions_key(messages: Sequence[Message]) -> str:
    """Key of the system messages of a prompt."""
    return content_digest("\n".join(message.text for message in messages if message.role in INSTRUCTIONS))


def _parts_of(text: str) -> Iterator[int]:
    return (hash(part) for part in _END_OF_PART.split(text.strip(), _PARTS) if part)
