"""Which new messages of a prompt are a summary of messages that the prompt has dropped."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise

from memtrace_otel.instrumentation.chat_history.alignment import Entry, Match, sentences_of
from memtrace_otel.instrumentation.chat_history.messages import INSTRUCTIONS, Message
from memtrace_otel.model import ref_kind
from memtrace_otel.semconv import RefKind

Summary = tuple[Sequence[int], list[str]]
"""Positions of the messages of one summary, and the refs of the entries that the summary replaces."""

Quotes = Callable[[str], bool]
"""Whether a text quotes a reply of this turn."""


def find_summaries(match: Match, messages: Sequence[Message], query: int, quotes: Quotes) -> list[Summary]:
    """A new compaction, else new messages in the place of dropped ones, else new instructions.

    `query` is the position of the question.
    """
    removed = [entry.ref for entry in match.removed]
    if not removed:
        return []
    for place, entry in match.kept.items():
        if messages[place].compaction and not entry.origin:
            return [([place], [*removed, entry.ref])]
    summaries = _in_gaps(match, messages, query, quotes)
    place = None if summaries else _new_instructions(match, messages, quotes)
    return summaries if place is None else [([place], removed)]


def is_summary(entry: Entry) -> bool:
    """Whether the entry has replaced other messages."""
    return bool(entry.made_of) and ref_kind(entry.made_of[0][0]) == RefKind.STATE


def _in_gaps(match: Match, messages: Sequence[Message], query: int, quotes: Quotes) -> list[Summary]:
    """New messages between two kept ones; if none is kept, new messages before the question.

    A text that quotes a reply may stand anywhere. A text that does not, and stands where a summary stood (a note),
    replaces only that summary; the other dropped messages were trimmed.
    """
    at = {entry.ref: index for index, entry in enumerate(match.conversation.entries)}
    left = {at[entry.ref]: entry for entry in match.removed}
    kept = [(place, at[entry.ref]) for place, entry in match.kept.items()]
    summaries: list[Summary] = []
    for (start, before), (stop, behind) in pairwise([(-1, -1), *(kept or [(query, len(at))])]):
        places = [place for place in range(start + 1, stop) if messages[place].role not in INSTRUCTIONS]
        if not places:
            continue
        by_model = quotes("\n".join(messages[place].text for place in places))
        here = [index for index in range(before + 1, behind) if index in left] or (list(left) if by_model else [])
        if here and not by_model and is_summary(left[here[0]]):
            del here[1:]
        if here:
            summaries.append((places, [left.pop(index).ref for index in here]))
    return summaries


def _new_instructions(match: Match, messages: Sequence[Message], quotes: Quotes) -> int | None:
    """Position of the system message that summarises the dropped messages, None without one.

    The message quotes a reply, or says something new and stands before what followed the dropped messages. If the
    instructions change at every call, only a quote counts.
    """
    known = match.conversation.instructions
    new = [
        place
        for place, message in enumerate(messages)
        if message.role in INSTRUCTIONS
        and place not in match.kept
        and any(hash(part) not in known for part in sentences_of(message.text))
    ]
    quoting = [place for place in new if quotes(messages[place].text)]
    if quoting or match.conversation.volatile:
        return max(quoting, default=None)
    at = {entry.ref: index for index, entry in enumerate(match.conversation.entries)}
    last = max(at[entry.ref] for entry in match.removed)
    behind = min((place for place, entry in match.kept.items() if at[entry.ref] > last), default=len(messages))
    return max((place for place in new if place < behind), default=None)
