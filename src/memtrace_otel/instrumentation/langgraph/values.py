"""What a stored value says, as the text that a prompt will hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from memtrace_otel.capture import as_text

_TEXTS = ("content", "text", "memory", "data", "value")


def text_of(value: object) -> str:
    """The text of a value: that of its `content`, `text`, ..., or its only text; else the whole value as JSON."""
    said = _said(value)
    return as_text(value)[0] if said is None else said


def _said(value: object, depth: int = 3) -> str | None:
    if isinstance(value, str):
        return value
    if not isinstance(value, Mapping) or not depth:
        return None
    values = cast(Mapping[object, object], value)
    named = [values[key] for key in _TEXTS if key in values]
    for inner in named or (list(values.values()) if len(values) == 1 else []):
        said = _said(inner, depth - 1)
        if said is not None:
            return said
    return None
