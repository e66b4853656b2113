"""State of the LangGraph instrumentor between calls: records, threads, and the thread of a model call."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias, cast

from opentelemetry.trace import Tracer

from memtrace_otel.capture import scope_id
from memtrace_otel.instrumentation import steps
from memtrace_otel.instrumentation.base import Patches
from memtrace_otel.instrumentation.chat_history import alignment
from memtrace_otel.instrumentation.chat_history.alignment import paired
from memtrace_otel.instrumentation.chat_history.history import KeptHistory, asked_last, keepers
from memtrace_otel.instrumentation.chat_history.messages import INSTRUCTIONS, Message
from memtrace_otel.instrumentation.langchain.langgraph.threads import Held, Threads, said_key
from memtrace_otel.instrumentation.langchain.records import Records
from memtrace_otel.instrumentation.store_location import Places
from memtrace_otel.model import make_ref, split_ref
from memtrace_otel.semconv import RefKind

SYSTEM = "langgraph"


class LangGraphState(Patches):
    """`records` are those of stores, `threads` the messages of checkpointers."""

    def __init__(self, tracer: Tracer) -> None:
        super().__init__(tracer, SYSTEM)
        self.records, self.threads = Records(), Threads()
        self._places = Places()

    def keep_histories(self) -> None:
        """Let model calls in the nodes of a graph read their thread as history."""
        keepers.append(self.history_of)

    def remove(self) -> None:
        """Restore the originals."""
        super().remove()
        if self.history_of in keepers:
            keepers.remove(self.history_of)

    def scope_of(self, holder: Any, owner: str) -> str:
        """Scope of a namespace or thread in the place of its store or checkpointer."""
        return scope_id(SYSTEM, user=owner, app=self._places.of(holder) or None)

    def history_of(self, messages: Sequence[Message]) -> KeptHistory | None:
        """The thread of the current run, as the history of a model call with these messages.

        None outside the nodes of a graph with a checkpointer, and in a subgraph whose prompt repeats nothing of the
        thread.
        """
        settings = _run_settings()
        saver, thread = settings.get("__pregel_checkpointer"), str(settings.get("thread_id") or "")
        if not thread or not callable(getattr(saver, "get_tuple", None)):
            return None
        scope = self.scope_of(saver, thread)
        checkpoints = cast(Mapping[str, Any], settings.get("checkpoint_map") or {})
        held = self.threads.held(scope, thread, str(checkpoints.get("") or ""))
        refs = aligned(messages, held, thread)
        question = asked_last(messages)
        named = messages[question].id if question >= 0 else ""
        asked = split_ref(refs.pop(question, ""))[1] or (f"{thread}/{named}" if named else "")
        if not refs and "|" in str(settings.get("checkpoint_ns") or ""):
            return None
        entries = {place: alignment.Entry("", ref, held[ref].origin) for place, ref in sorted(refs.items())}
        return KeptHistory(scope, entries, make_ref(RefKind.QUERY, asked) if asked else "")


Call: TypeAlias = steps.Call[LangGraphState]


def _run_settings() -> Mapping[str, Any]:
    """`configurable` of the run of this context."""
    variable = getattr(sys.modules.get("langchain_core.runnables.config"), "var_child_runnable_config", None)
    config = cast("Mapping[str, Any]", (variable.get() if variable is not None else None) or {})
    return cast(Mapping[str, Any], config.get("configurable") or {})


def aligned(messages: Sequence[Message], held: Mapping[str, Held], thread: str) -> dict[int, str]:
    """The refs of the prompt's messages that a thread holds, by position in the prompt.

    A message is found by its id if the text is the thread's, else by role and text in the order of both. The last
    question takes part, so that no equal earlier one is taken for it.
    """
    keys: list[str | int | None] = [said_key(message) for message in messages]
    own: dict[int, str] = {}
    for place, message in enumerate(messages):
        ref = make_ref(RefKind.STATE, f"{thread}/{message.id}") if message.id else ""
        if ref in held and held[ref].said == keys[place] and message.role not in INSTRUCTIONS:
            own[place] = keys[place] = ref
    for place, message in enumerate(messages):
        if message.role in INSTRUCTIONS or (message.id and place not in own):  # the id is not of the thread
            keys[place] = None
    claimed, refs = set(own.values()), list(held)
    rows = [ref if ref in claimed else version.said for ref, version in held.items()]
    found = {place: refs[at] for place, at in paired(keys, rows).items()} | own
    texts = {version.key: ref for ref, version in held.items() if not version.said}  # channels with a text
    for place, message in enumerate(messages if texts else ()):
        if place not in found and message.role not in INSTRUCTIONS and hash(message.text) in texts:
            found[place] = texts[hash(message.text)]
    return found
