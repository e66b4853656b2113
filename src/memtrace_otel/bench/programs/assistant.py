"""What the assistants of this folder have in common: the model, a span for each turn, and the judge."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from openai import OpenAI
from opentelemetry import trace
from opentelemetry.trace import Span

MODEL = "scripted-model"
ANSWER = """You are a friendly assistant. Answer from what you remember about the user, in one sentence.

What you remember:
{memories}"""
JUDGE = """You mark answers. Reply in JSON: {"label": "CORRECT" or "WRONG", "score": 0 to 1, "explanation": "..."}"""

tracer = trace.get_tracer("assistant")


class Assistant(ABC):
    """An assistant with memory. `asking` says how the memory is searched for the question."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.model = OpenAI()
        self.asking: Mapping[str, Any] = {}

    @abstractmethod
    def chat(self, user: str, date: str, text: str, thread: int) -> None:
        """Hold one turn of a conversation and remember the turn."""

    @abstractmethod
    def answer(self, user: str, question: str) -> str:
        """Return the answer to a question, from memory."""

    def ask(self, user: str, question: str, expected: str) -> None:
        """Answer a question from memory and have the answer marked."""
        with self.turn(user):
            given = self.answer(user, question)
            prompt = f"Question: {question}\nExpected answer: {expected}\nGiven answer: {given}"
            self.complete(JUDGE, [{"role": "user", "content": prompt}])

    def turn(self, user: str) -> AbstractContextManager[Span]:
        """Return the span of a turn."""
        attributes = {"gen_ai.operation.name": "invoke_agent", "gen_ai.agent.name": "assistant", "user.id": user}
        return tracer.start_as_current_span("invoke_agent assistant", attributes=attributes)

    def complete(self, system: str, messages: Sequence[Mapping[str, str]]) -> str:
        """Return the model's reply to a system prompt and messages."""
        prompt: Any = [{"role": "system", "content": system}, *messages]
        reply = self.model.chat.completions.create(model=MODEL, messages=prompt)
        return reply.choices[0].message.content or ""

    def close(self) -> None:
        """Give the client of the model back."""
        self.model.close()


def shortened(texts: Sequence[str], lost: str) -> list[str]:
    """Return what reaches the prompt of what was found: without the first text ("dropped"), or half of it ("cut")."""
    first, rest = texts[:1], list(texts[1:])
    if lost == "dropped":
        return rest
    return [*(text[: len(text) // 2] if lost else text for text in first), *rest]
