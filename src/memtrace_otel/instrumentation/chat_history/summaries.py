"""Which texts of a prompt stand for messages that it no longer repeats."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from memtrace_otel.instrumentation.chat_history.alignment import Continued, Entry
from memtrace_otel.instrumentation.chat_history.messages import INSTRUCTIONS, Message
from memtrace_otel.model import ref_kind
from memtrace_otel.semconv import RefKind

Summary = tuple[Sequence[int], list[str]]
"""Positions of the messages that are one summary, and the refs of the entries that it stands for."""

Quotes = Callable[[str], bool]
"""Whether a text holds a reply of this turn."""


def find_summaries(found: Continued, messages: Sequence[Message], query: int, quotes: Quotes) -> list[Summary]:
    """A new compaction, new messages where removed ones stood or else new instructions; `query` is the position of the
    question."""
    removed = [entry.ref for entry in found.removed]
    if not removed:
        return []
    for place, entry in found.kept.items():
        if messages[place].compaction and not entry.origin:
            return [([place], [*removed, entry.ref])]
    summaries = _in_gaps(found, messages, query, quotes)
    place = None if summaries else _new_instructions(found, messages, quotes)
    return summaries if place is None else [([place], removed)]


def _in_gaps(found: Continued, messages: Sequence[Message], query: int, quotes: Quotes) -> list[Summary]:
    """New messages between the same two that were kept or, where nothing was, before the question; what quotes a reply
    may stand anywhere.

    A text that has replaced others before, a note say, is replaced alone: what else is gone was trimmed. Only a text
    that a model has made of both, a rolling summary, replaces both.
    """
    at = {entry.ref: index for index, entry in enumerate(found.conversation.entries)}
    left = {at[entry.ref]: entry for entry in found.removed}
    kept = [(place, at[entry.ref]) for place, entry in found.kept.items()]
    summaries: list[Summary] = []
    for (start, before), (stop, behind) in pairwise([(-1, -1), *(kept or [(query, len(at))])]):
        places = [place for place in range(start + 1, stop) if messages[place].role not in INSTRUCTIONS]
        if not places:
            continue
        by_model = quotes("\n".join(messages[place].text for place in places))
        here = [index for index in range(before + 1, behind) if index in left] or (list(left) if by_model else [])
        if here and not by_model and has_replaced(left[here[0]]):
            del here[1:]
        if here:
            summaries.append((places, [left.pop(index).ref for index in here]))
    return summaries


def _new_instructions(found: Continued, messages: Sequence[Message], quotes: Quotes) -> int | None:
    """Position of the system message that a history went into: it quotes a reply, or says something new where removed
    messages may have stood, which is not behind all those that came after them. None where there is no such message or
    always another one."""
    before = found.conversation
    new = [
        place
        for place, message in enumerate(messages)
        if message.role in INSTRUCTIONS and place not in found.kept and not before.instructions.hold(message.text)
    ]
    quoting = [place for place in new if quotes(messages[place].text)]
    if quoting or before.volatile:
        return max(quoting, default=None)
    at = {entry.ref: index for index, entry in enumerate(before.entries)}
    last = max(at[entry.ref] for entry in found.removed)
    behind = min((place for place, entry in found.kept.items() if at[entry.ref] > last), default=len(messages))
    return max((place for place in new if place < behind), default=None)


def has_replaced(entry: Entry) -> bool:
    """Whether it stands where other messages were."""
    return bool(entry.made_of) and ref_kind(entry.made_of[0][0]) == RefKind.STATE
