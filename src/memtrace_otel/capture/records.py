"""What the attributes of the standard say of the records of an operation, where its variables show it."""

from __future__ import annotations

from memtrace_otel import semconv
from memtrace_otel.capture.layout import Read, Written
from memtrace_otel.semconv import Action, RefKind, Role

_STORED = tuple(f"{kind}:" for kind in (RefKind.MEMORY, RefKind.STATE, RefKind.CHUNK, RefKind.DOCUMENT))
_MEMORY = f"{RefKind.MEMORY}:"
_LONGEST = 256
_CHANGES = frozenset(map(str, (Action.ADD, Action.UPDATE, Action.DELETE)))
_CANDIDATE, _HIT = str(Role.CANDIDATE), str(Role.HIT)


def record_attributes(read: list[Read], written: list[Written], *, found: bool) -> dict[str, str | int]:
    """How many records a write changed, and the id of the only one; how many a search found (`found`: it was one)."""
    changed = {ref for ref, _, action, *_ in written if action in _CHANGES and ref.startswith(_STORED)}
    if changed:
        said: dict[str, str | int] = {semconv.GEN_AI_MEMORY_RECORD_COUNT: len(changed)}
        ref = changed.pop()
        if not changed and ref.startswith(_MEMORY) and len(ref) < _LONGEST and ref.isprintable():  # no lone surrogate
            said[semconv.GEN_AI_MEMORY_RECORD_ID] = ref.removeprefix(_MEMORY)
        return said
    hits = sum(one[1] == _HIT for one in read)
    if not found or (not hits and _shows_more(read, written)):
        return {}
    return {semconv.GEN_AI_MEMORY_RECORD_COUNT: hits}


def _shows_more(read: list[Read], written: list[Written]) -> bool:
    """Whether a search without hits found something nevertheless: it says so in other words, not of how many."""
    return any(text for _, _, _, text, *_ in written) or any(
        ref.startswith(_STORED) and role != _CANDIDATE for ref, role, *_ in read
    )
