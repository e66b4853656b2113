"""The call that Mem0's steps are given."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from memtrace_otel.instrumentation import steps

if TYPE_CHECKING:
    from memtrace_otel.instrumentation.mem0.patches import Mem0Patches

Call: TypeAlias = "steps.Call[Mem0Patches]"
