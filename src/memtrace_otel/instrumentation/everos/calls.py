"""The call that EverOS' steps are given."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from memtrace_otel.instrumentation import steps

if TYPE_CHECKING:
    from memtrace_otel.instrumentation.everos.patches import EverosPatches

Call: TypeAlias = "steps.Call[EverosPatches]"
