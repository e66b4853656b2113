"""Metadata filters of a search as a list of conditions; they may hold personal data, so values are digests at first.

Those of the owner stay digests when contents are captured, as in the scope.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import cast

from memtrace_otel.capture import Operation, as_text, variable_ref
from memtrace_otel.instrumentation.mem0.variables import OWNERS
from memtrace_otel.model import split_ref
from memtrace_otel.semconv import RETRIEVAL_FILTERS, RefKind

MOST = 32
_LONGEST = 200
_DEEPEST = 8


def record_filters(operation: Operation, filters: object) -> None:
    """Put the conditions on the span: `field=value`, `field.operator=value`, `OR.0.field=value`."""
    shown: list[str] = []
    for name, value in _conditions(filters, "", _DEEPEST):
        if len(shown) == MOST:
            break
        names_owner = not set(OWNERS).isdisjoint(name.split(".")) or _holds_conditions(value)  # too deep: perhaps
        is_shown = operation.captures_content and not names_owner
        text = as_text(value)[0] if is_shown else split_ref(variable_ref(RefKind.QUERY, value))[1]
        shown.append(f"{name}={text}"[:_LONGEST])
    if shown:
        operation.set(RETRIEVAL_FILTERS, shown)


def _conditions(value: object, name: str, depth: int) -> Iterator[tuple[str, object]]:
    prefix = f"{name}." if name else ""
    if isinstance(value, Mapping) and depth:
        for key, inner in cast("Mapping[object, object]", value).items():
            yield from _conditions(inner, f"{prefix}{key}", depth - 1)
    elif isinstance(value, list) and depth and _holds_conditions(cast("list[object]", value)):
        for number, inner in enumerate(cast("list[object]", value)):
            yield from _conditions(inner, f"{prefix}{number}", depth - 1)
    elif name and value is not None:
        yield name, value


def _holds_conditions(value: object) -> bool:
    items = cast("list[object]", value) if isinstance(value, list) else [value]
    return any(isinstance(item, Mapping) for item in items)
