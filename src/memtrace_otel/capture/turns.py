"""What an operation leaves to the other operations of its turn, and whether it lacks a turn of its own."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from memtrace_otel.capture.layout import Read, Written
from memtrace_otel.capture.recall import Answer, Recalled, recall, turn_of, unanswered
from memtrace_otel.model import ref_kind
from memtrace_otel.semconv import Incomplete, OpKind, RefKind, Role

_RETRIEVE, _UNKNOWN_ORIGIN = str(OpKind.RETRIEVE), str(Incomplete.UNKNOWN_ORIGIN)
_MEMORY = frozenset({Role.HIT, Role.CONTEXT})
_WRITING = frozenset({OpKind.INGEST, OpKind.EXTRACT, OpKind.DECIDE, OpKind.CREATE, OpKind.UPDATE, OpKind.DELETE})


def is_step(system: str, around_kind: str, around_system: str) -> bool:
    """Whether a look-up inside another operation is a step of it, not what the turn searched for."""
    return around_kind in _WRITING or (around_kind == _RETRIEVE and around_system == system)


def searched(
    origin: str, scope: str, read: list[Read], context: str, incomplete: Collection[str], *, alone: bool
) -> None:
    """Let later model calls of this turn find what was retrieved, and the ref of what was made of it; `alone`: the
    search is a trace by itself."""
    certain = _UNKNOWN_ORIGIN not in incomplete
    done = turn_of(origin[:32], alone=alone).retrieved(origin, scope, read, context, certain=certain)
    if alone:
        unanswered.searched(done)


def responded(origin: str, read: list[Read], written: list[Written], *, alone: bool) -> None:
    """Let later model calls of this turn find what was answered, and to which query."""
    turn = turn_of(origin[:32], alone=alone)
    query = next(((ref, text) for ref, role, _, text, _ in read if role == Role.QUERY), ("", ""))
    for ref, _, _, text, _, _ in written:
        if ref_kind(ref) == RefKind.ANSWER:
            turn.answered(Answer(ref, origin, text, query=query))
        elif ref_kind(ref) == RefKind.COMPLETION:
            turn.called(Recalled(ref, origin, text))


def may_lack_turn(origin: str, *, alone: bool) -> bool:
    """Whether an answer may lack its own search: its turn has none, and some outside any span wait for an answer."""
    return unanswered.answered(recall("" if alone else origin[:32]))


def lacks_nothing(read: Sequence[Read], started: float, alone: bool) -> bool:
    """Whether an answer names the memory it read, or no search has to do with what it was given; where nothing tells,
    an answer in a span of the program is taken to be whole."""
    if any(role in _MEMORY for _, role, _, _, _ in read) or not (alone or any(text for _, _, _, text, _ in read)):
        return True
    return not unanswered.may_be_answered(read, started)
