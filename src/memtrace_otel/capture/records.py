"""What the attributes of the standard say of the records of an operation, where its variables show it."""

from __future__ import annotations

from memtrace_otel import semconv
from memtrace_otel.capture.layout import Read, Written
from memtrace_otel.model import split_ref
from memtrace_otel.semconv import Action, OpKind, RefKind, Role

_STORED = tuple(f"{kind}:" for kind in (RefKind.MEMORY, RefKind.STATE, RefKind.CHUNK, RefKind.DOCUMENT))
_WRITING = frozenset(map(str, (OpKind.INGEST, OpKind.CREATE, OpKind.UPDATE, OpKind.DELETE, OpKind.CONSOLIDATE)))
_CHANGES = frozenset(map(str, (Action.ADD, Action.UPDATE, Action.DELETE)))
_HIT = str(Role.HIT)
_BESIDE = frozenset(map(str, (Role.QUERY, Role.CANDIDATE, Role.PROMPT, Role.HISTORY)))
"""Roles of what a search reads and does not return."""
_LONGEST = 256
"""Characters of an id that is an attribute; the ref has longer ones."""


def record_attributes(kind: str, read: list[Read], written: list[Written], *, found: bool) -> dict[str, str | int]:
    """How many records a write changed, and the id of the only one; how many a search found (`found`: it was one)."""
    if found:
        hits = {one[0] for one in read if one[1] == _HIT}
        if not hits and (any(one[3] for one in written) or not _BESIDE.issuperset(one[1] for one in read)):
            return {}  # it found something, and does not say of how many records
        return {semconv.GEN_AI_MEMORY_RECORD_COUNT: len(hits)}
    if kind not in _WRITING:
        return {}
    changed = {one[0] for one in written if one[2] in _CHANGES and one[0].startswith(_STORED)}
    if not changed:
        return {}
    said: dict[str, str | int] = {semconv.GEN_AI_MEMORY_RECORD_COUNT: len(changed)}
    record_kind, id = split_ref(changed.pop())
    if not changed and record_kind == RefKind.MEMORY and len(id) < _LONGEST and id.isprintable():  # no lone surrogate
        said[semconv.GEN_AI_MEMORY_RECORD_ID] = id
    return said
