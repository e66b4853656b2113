"""The thread that a run of a graph goes on with: the history of model calls made in its nodes is recorded there."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from memtrace_otel.instrumentation.langgraph.threads import Held
from memtrace_otel.instrumentation.openai.calls import INSTRUCTIONS, Message
from memtrace_otel.instrumentation.openai.conversations import Entry
from memtrace_otel.instrumentation.openai.history import Kept, asked_last

if TYPE_CHECKING:
    from memtrace_otel.instrumentation.langgraph.patches import LangGraphPatches


def kept_by_thread(patches: LangGraphPatches, messages: Sequence[Message]) -> Kept | None:
    """What of a prompt the thread of this run holds; None outside the nodes of a graph with a checkpointer, and in a
    subgraph whose prompts repeat nothing of the thread."""
    settings = _settings()
    saver, thread = settings.get("__pregel_checkpointer"), str(settings.get("thread_id") or "")
    if not thread or not callable(getattr(saver, "get_tuple", None)):
        return None
    scope = patches.scope_of(saver, thread)
    steps = cast(Mapping[str, Any], settings.get("checkpoint_map") or {})
    held = patches.threads.held(scope, thread, str(steps.get("") or ""))
    entries = _aligned(messages, held)
    in_subgraph = "|" in str(settings.get("checkpoint_ns") or "")
    return None if in_subgraph and not entries else Kept(scope, entries)


def _settings() -> Mapping[str, Any]:
    """`configurable` of the run that this context belongs to."""
    variable = getattr(sys.modules.get("langchain_core.runnables.config"), "var_child_runnable_config", None)
    config = cast("Mapping[str, Any]", (variable.get() if variable is not None else None) or {})
    return cast(Mapping[str, Any], config.get("configurable") or {})


def _aligned(messages: Sequence[Message], held: Mapping[str, Held]) -> dict[int, Entry]:
    """The messages of a prompt that are in a thread, newest first in the order of both."""
    rows, query = list(held.items()), asked_last(messages)
    found: dict[int, Entry] = {}
    for place in range(len(messages) - 1, -1, -1):
        message = messages[place]
        if place == query or message.role in INSTRUCTIONS:
            continue
        key = hash(message.text)
        at = next((at for at in range(len(rows) - 1, -1, -1) if rows[at][1].key == key), None)
        if at is not None:
            ref, version = rows[at]
            found[place] = Entry("", ref, version.origin)
            del rows[at:]
    return dict(sorted(found.items()))
