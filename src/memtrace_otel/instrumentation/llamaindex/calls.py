"""The call that LlamaIndex's steps are given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias, TypeVar

from memtrace_otel.instrumentation import steps

if TYPE_CHECKING:
    from memtrace_otel.instrumentation.llamaindex.patches import LlamaIndexPatches

T = TypeVar("T")
BATCH = 100
"""Records of one operation: with contents, more would not fit the parts of a span. What comes at once in greater number
is spread over operations side by side."""

Call: TypeAlias = "steps.Call[LlamaIndexPatches]"


def purpose(call: Call) -> str:
    """What LlamaIndex calls the operation: class of the object in use, and method."""
    owner = call.instance if isinstance(call.instance, type) else type(call.instance)
    return f"{owner.__name__}.{call.wrapped.__name__}"


def batches(items: Sequence[T]) -> Iterator[Sequence[T]]:
    """Cut what one operation each can record; nothing at all makes one, too."""
    for start in range(0, max(1, len(items)), BATCH):
        yield items[start : start + BATCH]
