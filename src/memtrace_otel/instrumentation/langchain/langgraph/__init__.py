"""LangGraph instrumentor: long-term stores and the messages of checkpointed threads as memory operations."""

from __future__ import annotations

from collections.abc import Mapping

from opentelemetry.trace import Tracer

from memtrace_otel.instrumentation.base import MemoryInstrumentor
from memtrace_otel.instrumentation.langchain.langgraph import checkpoints, store
from memtrace_otel.instrumentation.langchain.langgraph.state import SYSTEM, LangGraphState
from memtrace_otel.instrumentation.langchain.state import Families, cover
from memtrace_otel.instrumentation.steps import StepFunction

__all__ = ["LangGraphInstrumentor"]


class LangGraphInstrumentor(MemoryInstrumentor):
    """Instruments `langgraph` 0.3 to 1.x: all classes derived from `BaseStore` and `BaseCheckpointSaver`."""

    system = SYSTEM
    requirement = "langgraph>=0.3.25,<2"

    def make_patches(self, tracer: Tracer) -> LangGraphState:
        """The state that the steps share."""
        return LangGraphState(tracer)

    def patch(self, patches: LangGraphState) -> None:
        """Wrap the methods below, each once the application has imported its module."""
        patches.keep_histories()
        cover(patches, FAMILIES)


_STORE: Mapping[str, StepFunction] = {"batch": store.batch, "abatch": store.batch}
# These queue their operation for a task of the store, which has another context than the caller.
_QUEUED: Mapping[str, StepFunction] = dict.fromkeys(("aget", "asearch", "aput", "adelete"), store.queued)
_SAVER: Mapping[str, StepFunction] = {
    "put": checkpoints.put,
    "aput": checkpoints.put,
    "get_tuple": checkpoints.get,
    "aget_tuple": checkpoints.get,
    "delete_thread": checkpoints.delete,
    "adelete_thread": checkpoints.delete,
}

FAMILIES: Families = {
    ("langgraph.store.base", "BaseStore"): _STORE,
    ("langgraph.store.base.batch", "AsyncBatchedBaseStore"): _QUEUED,
    ("langgraph.checkpoint.base", "BaseCheckpointSaver"): _SAVER,
}
