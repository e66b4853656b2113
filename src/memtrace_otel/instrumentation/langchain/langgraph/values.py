"""What a stored value says, as the text that a prompt will hold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from memtrace_otel.capture.values import as_text, text_in


def text_of(value: object) -> str:
    """The text of a value, also in its `data` or `value`, or its only text; else the whole value as JSON."""
    said, only, depth = text_in(value, "data", "value"), value, 3
    while said is None and depth and isinstance(only, Mapping) and len(cast("Mapping[object, object]", only)) == 1:
        (only,) = cast("Mapping[object, object]", only).values()
        said, depth = text_in(only, "data", "value"), depth - 1
    return as_text(value)[0] if said is None else said
