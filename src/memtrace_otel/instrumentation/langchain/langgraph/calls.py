"""The call that LangGraph's steps are given."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from memtrace_otel.instrumentation import steps

if TYPE_CHECKING:
    from memtrace_otel.instrumentation.langchain.langgraph.patches import LangGraphPatches

Call: TypeAlias = "steps.Call[LangGraphPatches]"
