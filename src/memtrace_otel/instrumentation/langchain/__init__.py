"""LangChain instrumentor: documents, chunks, vector stores, retrievers and answers as spans with their variables."""

from __future__ import annotations

from opentelemetry.trace import Tracer

from memtrace_otel.instrumentation.base import MemoryInstrumentor
from memtrace_otel.instrumentation.langchain.patches import SYSTEM, LangChainPatches

__all__ = ["LangChainInstrumentor"]


class LangChainInstrumentor(MemoryInstrumentor):
    """Instruments `langchain-core` 0.3 and 1.x: every vector store, retriever, loader and splitter derived from its
    base classes, those of other packages and of the application included."""

    system = SYSTEM
    requirement = "langchain-core>=0.3.46,<2"

    def make_patches(self, tracer: Tracer) -> LangChainPatches:
        """Patches that know which variable a document is."""
        return LangChainPatches(tracer)

    def patch(self, patches: LangChainPatches) -> None:
        """Cover the base classes, each once the application has imported it."""
        patches.cover_families()
