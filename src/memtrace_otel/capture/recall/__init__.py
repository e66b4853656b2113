"""What a turn has retrieved, asked and answered, by content: how a prompt is matched to memory versions.

- `turn`: what each turn knows, how it is found again (by trace or execution context), and how much of it is kept;
- `searches`: one search and what it found;
- `choosing`: what of it a prompt holds, and of which search that is when several fit;
- `unanswered`: searches that nothing joins to their answer;
- `text`: texts as a prompt repeats them.
"""

from __future__ import annotations

from memtrace_otel.capture.recall.choosing import PROMPT, found_in, place
from memtrace_otel.capture.recall.searches import Place, Recalled, Retrieval
from memtrace_otel.capture.recall.text import fold, quotes
from memtrace_otel.capture.recall.turn import (
    Turn,
    forget,
    recall,
    share_turn,
    trace_here,
    turn_here,
    turn_of,
    unshare_turn,
)

__all__ = [
    "PROMPT",
    "Place",
    "Recalled",
    "Retrieval",
    "Turn",
    "fold",
    "forget",
    "found_in",
    "place",
    "quotes",
    "recall",
    "share_turn",
    "trace_here",
    "turn_here",
    "turn_of",
    "unshare_turn",
]
