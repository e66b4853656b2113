"""The wrappers of LangGraph, and what they know beyond a single call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from opentelemetry.trace import Tracer

from memtrace_otel.capture import scope_id
from memtrace_otel.instrumentation.base import Patches
from memtrace_otel.instrumentation.chat_history.history import Kept, keepers
from memtrace_otel.instrumentation.chat_history.messages import Message
from memtrace_otel.instrumentation.langchain.identity import Records
from memtrace_otel.instrumentation.langchain.langgraph import checkpoints, store
from memtrace_otel.instrumentation.langchain.langgraph.replies import Replies
from memtrace_otel.instrumentation.langchain.langgraph.runs import kept_by_thread
from memtrace_otel.instrumentation.langchain.langgraph.threads import Threads
from memtrace_otel.instrumentation.steps import StepFunction
from memtrace_otel.instrumentation.store_location import Places

SYSTEM = "langgraph"

_STORE: Mapping[str, StepFunction] = {"batch": store.batch, "abatch": store.batch}
_QUEUED: Mapping[str, StepFunction] = dict.fromkeys(("aget", "asearch", "aput", "adelete"), store.queued)
"""These hand their operation to a task of the store, which knows nothing of the caller."""
_SAVER: Mapping[str, StepFunction] = {
    "put": checkpoints.put,
    "aput": checkpoints.put,
    "get_tuple": checkpoints.get,
    "aget_tuple": checkpoints.get,
    "delete_thread": checkpoints.delete,
    "adelete_thread": checkpoints.delete,
}
_FAMILIES: Mapping[tuple[str, str], Mapping[str, StepFunction]] = {
    ("langgraph.store.base", "BaseStore"): _STORE,
    ("langgraph.store.base.batch", "AsyncBatchedBaseStore"): _QUEUED,
    ("langgraph.checkpoint.base", "BaseCheckpointSaver"): _SAVER,
}


class LangGraphPatches(Patches):
    """`records` are those of the stores, `threads` the messages that checkpointers hold, `replies` those of them that
    are answers."""

    def __init__(self, tracer: Tracer) -> None:
        super().__init__(tracer, SYSTEM)
        self.records, self.threads, self.replies = Records(), Threads(), Replies()
        self._places = Places()

    def cover_families(self) -> None:
        """Cover each base class once its module is imported."""
        keepers.append(self.kept)
        for (module_name, class_name), steps in _FAMILIES.items():
            self.when_imported(
                module_name,
                lambda module, name=class_name, steps=steps: self.cover_family(getattr(module, name), steps),
            )

    def remove(self) -> None:
        """Restore the originals."""
        super().remove()
        if self.kept in keepers:
            keepers.remove(self.kept)

    def kept(self, messages: Sequence[Message]) -> Kept | None:
        """The thread that keeps the history of a model call made here."""
        return kept_by_thread(self, messages)

    def scope_of(self, holder: Any, owner: str) -> str:
        """Scope of a namespace or thread in the place of its store or checkpointer."""
        return scope_id(SYSTEM, user=owner, app=self._places.of(holder) or None)
