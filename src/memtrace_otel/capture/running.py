"""Which operation an execution context is in."""

from __future__ import annotations

from contextvars import ContextVar
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from memtrace_otel.capture.operations import Operation

running: ContextVar[Operation | None] = ContextVar("memtrace_current_operation", default=None)
"""The operation that was made current last; it may have ended (a task keeps the context it began in)."""


def current_operation() -> Operation | None:
    """The innermost memtrace operation of this context that has not ended."""
    operation = running.get()
    return operation and operation.or_around()
