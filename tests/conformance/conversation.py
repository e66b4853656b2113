"""The reference conversation of the conformance list, and the settings under which its rows were counted."""

from __future__ import annotations

import hashlib
import math
import re
from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True)
class Message:
    """One turn of Ann."""

    id: str
    text: str
    time: datetime
    session: str

    @property
    def line(self) -> str:
        """The text of the turn in the systems."""
        return f"[{self.time:%Y-%m-%d %H:%M}] Ann: {self.text}"


@dataclass(frozen=True)
class Question:
    """A question with the right answer, which the scripted model gives."""

    id: str
    text: str
    gold: str


_SESSIONS = {
    "s1": (datetime(2024, 3, 1, 10), ("I live in Paris.", "I have a dog named Rex.", "ok thanks")),
    "s2": (
        datetime(2024, 3, 2, 10),
        ("I moved to Lisbon.", "Rex was given away, no dog now.", "I like tea.", "ok thanks"),
    ),
}
MESSAGES = [
    Message(f"m{number}", text, start + timedelta(minutes=minute), session)
    for number, (session, start, minute, text) in enumerate(
        ((session, start, i, text) for session, (start, texts) in _SESSIONS.items() for i, text in enumerate(texts)), 1
    )
]
QUESTIONS = [
    Question("q1", "Where does Ann live?", "Lisbon"),
    Question("q2", "Does Ann like tea?", "yes"),
]
LONG = [
    Message(
        f"m{n}",
        f"{'TOPIC ' if n % 4 == 0 else ''}message number {n} about thing {n // 4}",
        datetime(2024, 3, 1 if n < 9 else 2, 10) + timedelta(minutes=n),
        "s1" if n < 9 else "s2",
    )
    for n in range(16)
]
"""The long variant: every fourth message begins a topic."""

TOP_K = 3


def words(text: str) -> int:
    """The tokenizer."""
    return len(text.split())


def embed(text: str) -> list[float]:
    """A hashed bag of words, 16 dimensions."""
    vector = [0.0] * 16
    for word in re.findall(r"[a-z0-9]+", text.lower()):
        vector[hashlib.sha256(word.encode()).digest()[0] % 16] += 1.0
    norm = math.sqrt(sum(value * value for value in vector)) or 1.0
    return [value / norm for value in vector]


def nearness(query: str, text: str) -> float:
    """Cosine of two embedded texts."""
    return sum(a * b for a, b in zip(embed(query), embed(text), strict=True))
