"""Checkpointers: the messages of a thread as `state`, with an operation for added and one for dropped messages.

A checkpoint repeats the whole state, so only changes since the parent are recorded. The parent may be an older
checkpoint of the thread: a run may continue any of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, cast

from opentelemetry.util.types import AttributeValue

from memtrace_otel import semconv
from memtrace_otel.capture import Operation, recall
from memtrace_otel.capture.content import message_refs, said
from memtrace_otel.instrumentation.chat_history.history import role_in_history
from memtrace_otel.instrumentation.chat_history.messages import Version
from memtrace_otel.instrumentation.chat_history.quoted_answers import introduced
from memtrace_otel.instrumentation.langchain.langgraph.state import Call
from memtrace_otel.instrumentation.langchain.langgraph.threads import Change, Entry, Reply, entries_of, replies_of
from memtrace_otel.instrumentation.langchain.state import purpose
from memtrace_otel.instrumentation.steps import Step
from memtrace_otel.semconv import Action, Incomplete, OpKind, Role

_HITS = 32
"""Newest messages of a thread that a read names, as many as fit on one span."""


def put(call: Call) -> Step:
    """`put`: new and changed messages in, their versions out; dropped messages become tombstones."""
    if not call.enter("checkpoint"):
        return
    arguments = call.arguments()
    thread, parent = _thread(arguments.get("config"))
    checkpoint = cast(Mapping[str, Any], arguments.get("checkpoint") or {})
    values = cast(Mapping[str, Any], checkpoint.get("channel_values") or {})
    channels = set(arguments.get("new_versions") or ()) & set(values)  # a DeltaChannel has a new version and no value
    if not thread:
        return
    scope = call.patches.scope_of(call.instance, thread)
    entries = entries_of(thread, values, channels)
    change = call.patches.threads.change(scope, thread, parent, entries, channels)
    turn, attributes = recall.turn_here(), _store(call)
    stored = trimmed = None
    if change.added or change.updated:
        kind = OpKind.UPDATE if change.updated else OpKind.CREATE
        stored = call.open(
            semconv.UPSERT_MEMORY, kind, scope=scope, purpose=purpose(call), attributes=attributes, current=False
        )
    if change.removed:
        trimmed = call.open(
            semconv.DELETE_MEMORY, OpKind.DELETE, scope=scope, purpose="trim", attributes=attributes, current=False
        )
    yield
    if stored is not None:
        replies = replies_of((*change.added, *change.updated), turn)
        _stored(stored, change, replies, turn.newest_answers() if turn else ())
    if trimmed is not None:
        _forget(trimmed, change.removed)
    origin = stored.origin if stored is not None else ""
    call.patches.threads.apply(scope, thread, str(checkpoint.get("id") or ""), change, origin)


def get(call: Call) -> Step:
    """`get_tuple`: a search that returns the messages of a thread."""
    if not call.enter("checkpoint"):
        return
    found = yield
    thread, checkpoint = _thread(getattr(found, "config", None))
    if not thread:
        return
    scope = call.patches.scope_of(call.instance, thread)
    values = cast(Mapping[str, Any], found.checkpoint.get("channel_values") or {})
    entries = entries_of(thread, values)
    held = call.patches.threads.found(scope, thread, checkpoint, entries)
    if not entries:
        return
    operation = call.open(
        semconv.SEARCH_MEMORY, OpKind.RETRIEVE, scope=scope, purpose=purpose(call), attributes=_store(call)
    )
    operation.set(semconv.GEN_AI_MEMORY_RECORD_COUNT, len(entries))
    newest = list(entries.values())[-_HITS:]
    if len(newest) < len(entries):
        operation.mark(Incomplete.BUDGET)
    for entry in newest:
        known = held.get(entry.ref)
        operation.read(entry.ref, role=Role.HIT, content=entry.text, origin=(known and known.origin) or None)
    operation.context()


def delete(call: Call) -> Step:
    """`delete_thread`: a tombstone for each message of the thread."""
    if not call.enter("checkpoint"):
        return
    thread = str(call.arguments().get("thread_id") or "")
    scope = call.patches.scope_of(call.instance, thread)
    operation = call.open(
        semconv.DELETE_MEMORY, OpKind.DELETE, scope=scope, purpose=purpose(call), attributes=_store(call)
    )
    yield
    refs = call.patches.threads.forget(scope, thread)
    operation.set(semconv.GEN_AI_MEMORY_RECORD_COUNT, len(refs))
    if not refs:  # this process has seen none
        operation.mark(Incomplete.UNKNOWN_RECORD)
    _forget(operation, refs)


def _thread(config: object) -> tuple[str, str]:
    """Ids of the thread and of the checkpoint, '' for the state of one run of a subgraph."""
    given = cast("Mapping[str, Any]", config if isinstance(config, Mapping) else {})
    settings = cast(Mapping[str, Any], given.get("configurable") or {})
    namespace = str(settings.get("checkpoint_ns") or "")
    thread = str(settings.get("thread_id") or "")
    if not thread or ":" in namespace:
        return "", ""
    return f"{thread}|{namespace}" if namespace else thread, str(settings.get("checkpoint_id") or "")


def _stored(
    operation: Operation, change: Change, replies: Mapping[str, Reply], answers: Iterable[recall.Answer]
) -> None:
    entries = [*change.added, *change.updated]
    operation.set(semconv.GEN_AI_MEMORY_RECORD_COUNT, len(entries))
    answers = list(answers)
    messages = message_refs(((entry.text, entry.id) for entry in entries), operation.origin[33:])
    for entry, message in zip(entries, messages, strict=True):
        before = change.held.get(entry.ref)
        if before is not None and entry.id:  # edited: other words under the same id
            message = said(message, operation.origin[33:])
        summary = _summary(entry, replies.get(entry.ref), answers) if change.removed else None
        made_of = entry.made_of if before is None else ()
        sources = _said(operation, entry, message, made_of, summary or replies.get(entry.ref))
        if summary is not None:
            sources += [
                operation.read(ref, role=Role.HISTORY, origin=held.origin or None)
                for ref, held in change.removed.items()
            ]
        if before is not None:
            sources.append(operation.read(entry.ref, role=Role.PREVIOUS, origin=before.origin or None))
        action = Action.ADD if before is None else Action.UPDATE
        operation.wrote(entry.ref, action=action, content=entry.text, sources=sources)


def _summary(entry: Entry, reply: Reply | None, answers: Sequence[recall.Answer]) -> Reply | None:
    """The reply that summarises messages dropped by the same checkpoint: the text of a channel, or a message that
    quotes the reply ("Here is a summary: ...")."""
    if entry.role == "text":
        return reply
    if entry.role == "assistant":
        return None
    for answer in answers:
        if answer.telling and recall.quotes(entry.text, answer.text):
            return Reply(answer, sure=True)
    short = introduced(entry.text, answers) if entry.role != "tool" else None
    return Reply(short, sure=False) if short else None


def _said(
    operation: Operation, entry: Entry, message: str, made_of: Sequence[Version], reply: Reply | None
) -> list[int]:
    """Read the sources of an entry: an answer of this turn, other known versions, or the message itself."""
    texts: dict[Version, str] = {}
    if reply is not None:
        if not reply.sure:
            operation.mark(Incomplete.INFERRED)
        answer = (reply.answer.ref, reply.answer.origin)
        texts, made_of = {answer: reply.answer.text}, made_of if answer in made_of else [answer]
    if not made_of:
        return [operation.read(message, role=Role.MESSAGE, content=entry.text)]
    return [
        operation.read(ref, role=role_in_history(ref), origin=origin, content=texts.get((ref, origin)))
        for ref, origin in made_of
    ]


def _forget(operation: Operation, refs: Iterable[str]) -> None:
    for ref in refs:
        previous = operation.read(ref, role=Role.PREVIOUS)
        operation.wrote(ref, action=Action.DELETE, sources=[previous])


def _store(call: Call) -> dict[str, AttributeValue]:
    return {semconv.GEN_AI_MEMORY_STORE_ID: type(call.instance).__name__}
