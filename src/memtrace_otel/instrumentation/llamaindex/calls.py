"""The call that LlamaIndex's steps are given."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from memtrace_otel.instrumentation import steps

if TYPE_CHECKING:
    from memtrace_otel.instrumentation.llamaindex.patches import LlamaIndexPatches

Call: TypeAlias = "steps.Call[LlamaIndexPatches]"


def purpose(call: Call) -> str:
    """What LlamaIndex calls the operation: class of the object in use, and method."""
    owner = call.instance if isinstance(call.instance, type) else type(call.instance)
    return f"{owner.__name__}.{call.wrapped.__name__}"
