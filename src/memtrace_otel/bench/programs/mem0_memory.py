"""The assistant of the demo on Mem0 2.x, and the same on Mem0 1.x, which updates and deletes by itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from memtrace_otel.bench.programs.assistant import shortened
from memtrace_otel.demo.assistant import Assistant

_DECIDES = int(version("mem0ai").partition(".")[0]) < 2
"""Mem0 1.x decides about each fact: to add, update or delete a record, or nothing."""


class Program(Assistant):
    """Searches for the question as the case says."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.asking: Mapping[str, Any] | None = None

    def chat(self, user: str, date: str, text: str, thread: int = 0) -> str:
        """Hold one turn of a conversation."""
        return super().chat(user, date, text)

    def recall(self, query: str, user: str, limit: int) -> Sequence[dict[str, Any]]:
        """Return the memories closest to `query`: none without a search, or less than what was found."""
        asking = self.asking
        if asking is None:
            return self._search(query, user, limit)
        if not asking["searches"]:
            return []
        found = self._search(query, asking["searched"], asking["hits"])
        texts = shortened([memory["memory"] for memory in found], asking["lost"])
        kept = found[len(found) - len(texts) :]
        return [{**memory, "memory": text} for memory, text in zip(kept, texts, strict=True)]

    def _search(self, query: str, user: str, limit: int) -> Sequence[dict[str, Any]]:
        if _DECIDES:
            return self.memory.search(query, user_id=user, limit=limit)["results"]
        return super().recall(query, user, limit)

    def maintain(self, said: str, reply: str, memories: Sequence[dict[str, Any]]) -> None:
        """Let the model update or delete memories, where Mem0 does not."""
        if not _DECIDES:
            super().maintain(said, reply, memories)

    def close(self) -> None:
        """Give the store back."""
        self.memory.vector_store.client.close()
