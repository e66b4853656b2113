"""Extraction inside `add`: the reply that holds the facts, or (procedural memory) is itself the memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from memtrace_otel.capture import Operation, variable_ref
from memtrace_otel.instrumentation.mem0 import replies
from memtrace_otel.instrumentation.mem0.calls import Call
from memtrace_otel.instrumentation.mem0.model_calls import consider, open_with_model_call, replied
from memtrace_otel.instrumentation.mem0.session import SESSION, Known, Session
from memtrace_otel.instrumentation.steps import Step
from memtrace_otel.model import make_ref
from memtrace_otel.semconv import Incomplete, OpKind, RefKind, Role

EXTRACTION_PROMPT = make_ref(RefKind.PROMPT, "mem0.fact_extraction")
PROCEDURAL_PROMPT = make_ref(RefKind.PROMPT, "mem0.procedural_memory")


def additive_extraction_prompt(call: Call) -> Step:
    """`generate_additive_extraction_prompt` (2.x): which memories and instructions the extraction sees."""
    session = SESSION.get()
    if session is None:
        return
    arguments = call.arguments()
    found = [record for records in (session.neighbours or {}).values() for record in records]
    session.considered = {str(number): record for number, record in enumerate(found)}
    session.instructions = str(arguments.get("custom_instructions") or "")
    yield


def extract(call: Call) -> Step:
    """The reply that holds the facts: prompt, messages, earlier messages and memories in, facts out."""
    session = cast(Session, SESSION.get())
    operation, asking = open_with_model_call(call, OpKind.EXTRACT, session.scope, "extract_facts")
    sources = _read_conversation(call, session, operation, EXTRACTION_PROMPT)
    considered = consider(session, operation)
    _read_conversation(call, session, asking, EXTRACTION_PROMPT)
    reply = yield
    session.replied = replied(call, asking, reply)
    sources.append(session.replied.read_by(operation))
    found = replies.facts(call.patches.main, reply)
    if found is None:
        operation.mark(Incomplete.UNPARSED)
    for fact in found or []:
        if fact.text in session.facts:
            continue
        session.facts.append(fact.text)
        linked = [considered[id] for id in fact.linked if id in considered]
        _derive(operation, session, fact.text, [*sources, *linked])


def summarise(call: Call) -> Step:
    """The reply that is itself the memory (procedural memory): prompt and messages in, one fact out."""
    session = cast(Session, SESSION.get())
    operation, asking = open_with_model_call(call, OpKind.EXTRACT, session.scope, "create_procedural_memory")
    _read_conversation(call, session, operation, PROCEDURAL_PROMPT)
    _read_conversation(call, session, asking, PROCEDURAL_PROMPT)
    reply = yield
    summary = replied(call, asking, reply, is_json=False)
    summary.read_by(operation)
    if isinstance(summary.content, str) and summary.content:
        _derive(operation, session, summary.content, None)


def _read_conversation(call: Call, session: Session, operation: Operation, prompt: str) -> list[int]:
    read = [operation.read(prompt, role=Role.PROMPT, content=_system_prompt(call, session))]
    read += [operation.read(turn.ref, role=Role.MESSAGE, content=turn.content) for turn in session.turns]
    read += [operation.read(turn.ref, role=Role.HISTORY, content=turn.content) for turn in session.history]
    return read


def _derive(operation: Operation, session: Session, text: str, sources: list[int] | None) -> None:
    ref = variable_ref(RefKind.FACT, text)
    operation.wrote(ref, content=text, sources=sources, event_time=session.event_time)
    session.learn(text, Known(ref, text, origin=operation.origin))


def _system_prompt(call: Call, session: Session) -> str:
    messages = cast(list[Mapping[str, Any]], call.arguments().get("messages") or [])
    system = next((str(message.get("content")) for message in messages if message.get("role") == "system"), "")
    return f"{system}\n\n{session.instructions}" if session.instructions else system
