"""A home-made memory: after each turn the model rewrites a profile, which is part of the system prompt."""

from __future__ import annotations

from collections import defaultdict
from pathlib import Path

from memtrace_otel.bench.programs.assistant import ANSWER, Assistant

REWRITE = """You keep a profile of the user. Rewrite the profile with what the new messages tell: a line for each fact,
each line begins with "- ". Reply with the whole profile."""


class Program(Assistant):
    """A profile for each user."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.profiles: defaultdict[str, str] = defaultdict(lambda: "(nothing yet)")

    def chat(self, user: str, date: str, text: str, thread: int) -> None:
        """Answer one turn, then have the profile rewritten."""
        with self.turn(user):
            said = f"[{date}] {text}"
            told = f"User: {said}\nAssistant: {self.answer(user, said)}"
            prompt = f"Profile:\n{self.profiles[user]}\n\nNew messages:\n{told}"
            self.profiles[user] = self.complete(REWRITE, [{"role": "user", "content": prompt}])

    def answer(self, user: str, question: str) -> str:
        """Answer from the profile."""
        return self.complete(ANSWER.format(memories=self.profiles[user]), [{"role": "user", "content": question}])
