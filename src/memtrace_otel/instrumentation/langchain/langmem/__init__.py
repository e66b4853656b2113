"""langmem instrumentor: what the memory managers extract, decide and write, as spans with their variables."""

from __future__ import annotations

from opentelemetry.trace import Tracer

from memtrace_otel.instrumentation.base import MemoryInstrumentor
from memtrace_otel.instrumentation.langchain.langmem.patches import SYSTEM, LangMemPatches

__all__ = ["LangMemInstrumentor"]


class LangMemInstrumentor(MemoryInstrumentor):
    """Instruments the memory managers of `langmem` 0.0.16 and later. Its reads and writes are those of the LangGraph
    store, its model calls those of LangChain: their instrumentors record them."""

    system = SYSTEM
    requirement = "langmem>=0.0.16,<0.1"

    def make_patches(self, tracer: Tracer) -> LangMemPatches:
        """Patches that know the delayed work."""
        return LangMemPatches(tracer)

    def patch(self, patches: LangMemPatches) -> None:
        """Wrap the managers and the reflection executor once the application has imported them."""
        patches.apply_points()
