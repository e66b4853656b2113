"""The program that a real case runs: the assistant of the demo on Mem0, told a conversation and asked one question.

    real_mem0_program.py CASE.json

Run under `opentelemetry-instrument`, with a scripted model at OPENAI_BASE_URL.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from memtrace_otel.demo.assistant import Assistant


class CaseAssistant(Assistant):
    """Searches for the question as the case says."""

    def __init__(self, home: Path) -> None:
        super().__init__(home)
        self.asking: Mapping[str, Any] | None = None

    def recall(self, query: str, user: str, limit: int) -> Sequence[dict[str, Any]]:
        """Return the memories closest to `query`: none without a search, or less than what was found."""
        if self.asking is None:
            return super().recall(query, user, limit)
        if not self.asking["searches"]:
            return []
        found = super().recall(query, user, int(self.asking["hits"]))
        if not found or not self.asking["lost"]:
            return found
        first, *others = found
        if self.asking["lost"] == "dropped":
            return others
        return [{**first, "memory": first["memory"][: len(first["memory"]) // 2]}, *others]


def main() -> None:
    """Tell the turns, then ask."""
    case = json.loads(Path(sys.argv[1]).read_text("utf-8"))
    assistant = CaseAssistant(Path(sys.argv[1]).parent / "memory")
    try:
        for turn in case["turns"]:
            assistant.chat(turn["user"], turn["date"], turn["text"])
        assistant.asking = case["asking"]
        asked = case["asking"]
        assistant.ask(asked["user"], asked["question"], asked["expected"])
    finally:
        assistant.close()


if __name__ == "__main__":
    main()
