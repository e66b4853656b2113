"""Attributes of an operation: those that a program sets, within their share of the span, and those about records."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import cast

from opentelemetry.util.types import AttributeValue

from memtrace_otel import semconv
from memtrace_otel.capture.config import CaptureConfig, redaction
from memtrace_otel.capture.content import preview, show, show_value, utf8_bytes
from memtrace_otel.capture.layout import Read, Written
from memtrace_otel.model import split_ref
from memtrace_otel.semconv import Action, Incomplete, OpKind, RefKind, Role

_MOST = 40  # of the 64 that a span may have, with room for our own
_SHARE = 0.5  # of the bytes of a span; the variables have the rest
_FRAMING = 12  # bytes around a name and its value
_ITEM = 6  # around an item of a sequence
_NUMBER = 10
_OF_NO_USER = frozenset({semconv.CODE_FUNCTION_NAME, semconv.GEN_AI_OPERATION_NAME})


def admit(
    name: str, value: object, admitted: dict[str, int], limits: CaptureConfig
) -> tuple[AttributeValue | None, Incomplete | None]:
    """Return the part of an attribute that fits on a span (None for nothing), and the reason if that is not all.

    `admitted` are the bytes of the attributes that the span has been given so far; this one's are added. Numbers always
    fit: they are few and small, and counts are the last to be told.
    """
    name = str(name)
    others = sum(admitted.values()) - admitted.get(name, 0)
    room = int(limits.span_bytes * _SHARE) - others - utf8_bytes(name) - _FRAMING
    if name not in admitted and len(admitted) >= _MOST:
        return None, Incomplete.BUDGET
    if name in _OF_NO_USER and isinstance(value, str):
        shown = value
    elif name == semconv.OP_PURPOSE and isinstance(value, str):  # not a content, so the preview limit does not apply
        shown = show(value, limits, limits.span_bytes)
    else:
        shown = show_value(_named(name, value, limits), limits)
    kept = _cut(shown, room)
    if kept is None:
        return None, Incomplete.BUDGET
    admitted[name] = utf8_bytes(name) + _FRAMING + _bytes(kept)
    return kept, None if kept is shown else Incomplete.TRUNCATED


def _named(name: str, value: object, limits: CaptureConfig) -> object:
    """The value, or a note instead if the name is a secret key."""
    rules = limits.redaction or redaction()
    return value if rules is None else rules.of_attribute(name, value)


def _cut(value: AttributeValue, room: int) -> AttributeValue | None:
    """At most `room` bytes of a value: the beginning of a text, or the first items of a sequence."""
    if isinstance(value, bool | int | float) or _bytes(value) <= room:
        return value
    if isinstance(value, str):
        return preview(value, max(room, 0))[0] or None
    if not isinstance(value, Sequence):
        return None
    sizes = accumulate(_ITEM + _bytes(item) for item in value)
    return cast(AttributeValue, [item for item, size in zip(value, sizes, strict=True) if size <= room]) or None


def _bytes(value: AttributeValue) -> int:
    """Bytes of a value on the wire, about."""
    if isinstance(value, str):
        return utf8_bytes(value)
    if isinstance(value, Sequence):
        return sum(_ITEM + _bytes(item) for item in value)
    return _NUMBER


_STORED = tuple(f"{kind}:" for kind in (RefKind.MEMORY, RefKind.STATE, RefKind.CHUNK, RefKind.DOCUMENT))
_WRITING = frozenset(map(str, (OpKind.INGEST, OpKind.CREATE, OpKind.UPDATE, OpKind.DELETE, OpKind.CONSOLIDATE)))
_CHANGES = frozenset(map(str, (Action.ADD, Action.UPDATE, Action.DELETE)))
_HIT = str(Role.HIT)
_BESIDE = frozenset(map(str, (Role.QUERY, Role.CANDIDATE, Role.PROMPT, Role.HISTORY)))
"""Roles of inputs that a search does not return."""
_LONGEST = 256
"""Longest id, in characters, that is also an attribute."""


def record_attributes(kind: str, read: list[Read], written: list[Written], *, found: bool) -> dict[str, str | int]:
    """The number of records that a write changed, with the id of a single record, or that a search (`found`) found."""
    if found:
        hits = {one[0] for one in read if one[1] == _HIT}
        if not hits and (any(one[3] for one in written) or not _BESIDE.issuperset(one[1] for one in read)):
            return {}  # the number of found records is unknown
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
