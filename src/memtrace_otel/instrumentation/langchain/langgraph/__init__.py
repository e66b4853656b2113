"""LangGraph instrumentor: long-term stores and the messages of checkpointed threads as memory spans."""

from __future__ import annotations

from opentelemetry.trace import Tracer

from memtrace_otel.instrumentation.base import MemoryInstrumentor
from memtrace_otel.instrumentation.langchain.langgraph.patches import SYSTEM, LangGraphPatches

__all__ = ["LangGraphInstrumentor"]


class LangGraphInstrumentor(MemoryInstrumentor):
    """Instruments every `BaseStore` and `BaseCheckpointSaver` of `langgraph` 0.3 to 1.x, those of the application
    included."""

    system = SYSTEM
    requirement = "langgraph>=0.3.25,<2"

    def make_patches(self, tracer: Tracer) -> LangGraphPatches:
        """Patches that know the records of stores and the messages of threads."""
        return LangGraphPatches(tracer)

    def patch(self, patches: LangGraphPatches) -> None:
        """Cover the base classes, each once the application has imported it."""
        patches.cover_families()
