"""Mem0 instrumentor: the operations of `Memory` and `MemoryClient`, sync and async, as spans with their variables."""

from __future__ import annotations

from opentelemetry.trace import Tracer

from memtrace_otel.instrumentation.instrumentor import MemoryInstrumentor
from memtrace_otel.instrumentation.mem0 import client, collections
from memtrace_otel.instrumentation.mem0.patches import SYSTEM, Mem0Patches

__all__ = ["Mem0Instrumentor"]


class Mem0Instrumentor(MemoryInstrumentor):
    """Instruments `mem0ai` 1.x and 2.x, sync and async."""

    system = SYSTEM
    requirement = "mem0ai>=1.0,<3"

    def make_patches(self, tracer: Tracer) -> Mem0Patches:
        """Patches that know the records of Mem0."""
        return Mem0Patches(tracer)

    def patch(self, patches: Mem0Patches) -> None:
        """Wrap the modules of Mem0 once the application has imported them."""
        patches.when_imported("mem0.memory.main", patches.wrap_main)
        patches.when_imported("mem0.proxy.main", patches.wrap_proxy)
        patches.apply(client.POINTS)
        patches.apply(collections.POINTS)
