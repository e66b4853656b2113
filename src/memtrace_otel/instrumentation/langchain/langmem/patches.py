"""The wrappers of langmem, and the work that it puts off."""

from __future__ import annotations

from opentelemetry.trace import Tracer

from memtrace_otel.instrumentation.base import Patches, Points
from memtrace_otel.instrumentation.langchain.langmem import decisions, managers, reflection
from memtrace_otel.instrumentation.langchain.langmem.reflection import Delayed

SYSTEM = "langmem"

POINTS: Points = {
    "langmem.knowledge.extraction": {
        "MemoryStoreManager.invoke": managers.manage,
        "MemoryStoreManager.ainvoke": managers.manage,
        "MemoryStoreManager._sort_results": decisions.sort_results,
        "MemoryStoreManager._apply_manager_output": decisions.decide,
        "MemoryManager.invoke": managers.extract,
        "MemoryManager.ainvoke": managers.extract,
    },
    "langmem.reflection": {"LocalReflectionExecutor.submit": reflection.submit},
}


class LangMemPatches(Patches):
    """`delayed` knows in which context a reflection was asked for."""

    def __init__(self, tracer: Tracer) -> None:
        super().__init__(tracer, SYSTEM)
        self.delayed = Delayed()

    def apply_points(self) -> None:
        """Wrap what this release of langmem has of the table."""
        self.apply(POINTS)
