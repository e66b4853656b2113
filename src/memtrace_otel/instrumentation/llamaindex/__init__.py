"""LlamaIndex instrumentor: ingestion, retrieval, answers and chat memory as spans with their variables."""

from __future__ import annotations

from opentelemetry.trace import Tracer

from memtrace_otel.instrumentation.base import MemoryInstrumentor
from memtrace_otel.instrumentation.llamaindex.patches import SYSTEM, LlamaIndexPatches

__all__ = ["LlamaIndexInstrumentor"]


class LlamaIndexInstrumentor(MemoryInstrumentor):
    """Instruments `llama-index-core`, sync, async and streaming, with any vector store, model and embedder."""

    system = SYSTEM
    requirement = "llama-index-core>=0.12.37,<0.15"

    def make_patches(self, tracer: Tracer) -> LlamaIndexPatches:
        """Patches that know what LlamaIndex has stored."""
        return LlamaIndexPatches(tracer)

    def patch(self, patches: LlamaIndexPatches) -> None:
        """Wrap the modules of `llama_index.core` as the application imports them."""
        patches.wrap_all_points()
