"""The thread that a run of a graph goes on with: the history of model calls made in its nodes is recorded there."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

from memtrace_otel.instrumentation.chat_history.alignment import Entry
from memtrace_otel.instrumentation.chat_history.caller import paired
from memtrace_otel.instrumentation.chat_history.history import Kept, asked_last
from memtrace_otel.instrumentation.chat_history.messages import INSTRUCTIONS, Message
from memtrace_otel.instrumentation.langchain.langgraph.threads import Held, said_key
from memtrace_otel.model import make_ref, split_ref
from memtrace_otel.semconv import RefKind

if TYPE_CHECKING:
    from memtrace_otel.instrumentation.langchain.langgraph.patches import LangGraphPatches


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
    refs = _aligned(messages, held, thread)
    question = asked_last(messages)
    named = messages[question].id if question >= 0 else ""
    asked = split_ref(refs.pop(question, ""))[1] or (f"{thread}/{named}" if named else "")
    if not refs and "|" in str(settings.get("checkpoint_ns") or ""):
        return None
    entries = {place: Entry("", ref, held[ref].origin) for place, ref in sorted(refs.items())}
    return Kept(scope, entries, make_ref(RefKind.QUERY, asked) if asked else "")


def _settings() -> Mapping[str, Any]:
    """`configurable` of the run that this context belongs to."""
    variable = getattr(sys.modules.get("langchain_core.runnables.config"), "var_child_runnable_config", None)
    config = cast("Mapping[str, Any]", (variable.get() if variable is not None else None) or {})
    return cast(Mapping[str, Any], config.get("configurable") or {})


def _aligned(messages: Sequence[Message], held: Mapping[str, Held], thread: str) -> dict[int, str]:
    """The refs of the messages of a prompt that are in a thread: by their id where they say what it holds, else by who
    says what in the order of both. The last question takes part, so that no equal one before it is taken for it."""
    keys: list[str | int | None] = [said_key(message) for message in messages]
    own: dict[int, str] = {}
    for place, message in enumerate(messages):
        ref = make_ref(RefKind.STATE, f"{thread}/{message.id}") if message.id else ""
        if ref in held and held[ref].said == keys[place] and message.role not in INSTRUCTIONS:
            own[place] = keys[place] = ref
    for place, message in enumerate(messages):
        if message.role in INSTRUCTIONS or (message.id and place not in own):  # has an id, and not the thread's
            keys[place] = None
    claimed, refs = set(own.values()), list(held)
    rows = [ref if ref in claimed else version.said for ref, version in held.items()]
    found = {place: refs[at] for place, at in paired(keys, rows).items()} | own
    texts = {version.key: ref for ref, version in held.items() if not version.said}  # of channels: nobody's
    if texts:
        for place, message in enumerate(messages):
            if place not in found and message.role not in INSTRUCTIONS and hash(message.text) in texts:
                found[place] = texts[hash(message.text)]
    return found
