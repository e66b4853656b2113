"""What a turn has retrieved, asked and answered, by content: how a prompt is matched to memory versions.

- `here`: which turn is the one here, by trace or execution context;
- `turn`: what a turn knows, and what of it a prompt holds;
- `kept`: how much of all turns is kept;
- `searches`, `answers`: one search and what it found, one answer;
- `choosing`: what of it a prompt holds, and of which search that is when several fit;
- `unanswered`: searches that nothing joins to their answer;
- `text`: texts as a prompt repeats them.
"""

from __future__ import annotations

from memtrace_otel.capture.recall.answers import Answer, lately
from memtrace_otel.capture.recall.choosing import PROMPT, answered_here, found_in, place, places_in
from memtrace_otel.capture.recall.here import (
    answers_in,
    forget,
    recall,
    share_turn,
    trace_here,
    turn_here,
    turn_of,
    turn_within,
    unshare_turn,
)
from memtrace_otel.capture.recall.searches import Place, Recalled, Retrieval
from memtrace_otel.capture.recall.text import fold, quotes
from memtrace_otel.capture.recall.turn import InPrompt, Turn

__all__ = [
    "PROMPT",
    "Answer",
    "InPrompt",
    "Place",
    "Recalled",
    "Retrieval",
    "Turn",
    "answered_here",
    "answers_in",
    "fold",
    "forget",
    "found_in",
    "lately",
    "place",
    "places_in",
    "quotes",
    "recall",
    "share_turn",
    "trace_here",
    "turn_here",
    "turn_of",
    "turn_within",
    "unshare_turn",
]
