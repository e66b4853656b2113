"""The conversation as memory: the prompt has the whole history, or the part of the history that fits into a window."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from memtrace_otel.bench.programs.assistant import Assistant

SYSTEM = "You are a friendly assistant. Answer from the conversation, in one sentence."


class Program(Assistant):
    """A history for each user."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.histories: defaultdict[str, list[dict[str, str]]] = defaultdict(list)

    def chat(self, user: str, date: str, text: str, thread: int) -> None:
        """Answer one turn."""
        with self.turn(user):
            self.answer(user, f"[{date}] {text}")

    def answer(self, user: str, question: str) -> str:
        """Append the text and the reply to the history."""
        history = self.histories[user]
        history.append({"role": "user", "content": question})
        reply = self.complete(SYSTEM, history[-int(self.asking.get("window", len(history))) :])
        history.append({"role": "assistant", "content": reply})
        return reply
