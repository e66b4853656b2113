"""Attributes that a program gives an operation: redacted, and within their share of the budget of its span."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import cast

from opentelemetry.util.types import AttributeValue

from memtrace_otel.capture.config import CaptureConfig, redaction
from memtrace_otel.capture.content import preview, show, show_value, utf8_bytes
from memtrace_otel.semconv import CODE_FUNCTION_NAME, GEN_AI_OPERATION_NAME, OP_PURPOSE, Incomplete

_MOST = 40  # of the 64 that a span may have, with room for our own
_SHARE = 0.5  # of the bytes of a span; the variables have the rest
_FRAMING = 12  # bytes around a name and its value
_ITEM = 6  # around an item of a sequence
_NUMBER = 10
_OF_NO_USER = frozenset({CODE_FUNCTION_NAME, GEN_AI_OPERATION_NAME})  # words of the program and of the conventions


def admit(
    name: str, value: object, admitted: dict[str, int], limits: CaptureConfig
) -> tuple[AttributeValue | None, Incomplete | None]:
    """Return what of an attribute goes on a span, None when nothing of it fits, and why it is less than what was given.

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
    elif name == OP_PURPOSE and isinstance(value, str):  # no content: a preview limit is not for it
        shown = show(value, limits, limits.span_bytes)
    else:
        shown = show_value(_named(name, value, limits), limits)
    kept = _cut(shown, room)
    if kept is None:
        return None, Incomplete.BUDGET
    admitted[name] = utf8_bytes(name) + _FRAMING + _bytes(kept)
    return kept, None if kept is shown else Incomplete.TRUNCATED


def _named(name: str, value: object, limits: CaptureConfig) -> object:
    """A value, or the note for it when its name is that of a secret."""
    rules = limits.redaction or redaction()
    return value if rules is None else rules.of_attribute(name, value)


def _cut(value: AttributeValue, room: int) -> AttributeValue | None:
    """As much of a value as takes so many bytes: the beginning of a text, the first items of a sequence."""
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
