"""The steps of `add`: fact extraction, the decision about each fact (1.x), procedural memory.

Mem0 calls its language model inside long methods. A wrapped prompt builder selects the step for the next reply, and the
wrapped model call runs this step. Prompt, reply and parsed items are three operations in a chain.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import cast

from memtrace_otel.capture import Operation, variable_ref
from memtrace_otel.instrumentation.mem0 import graph, replies
from memtrace_otel.instrumentation.mem0.state import (
    SESSION,
    Call,
    Decision,
    Known,
    Session,
    provider_session,
    session_of,
)
from memtrace_otel.instrumentation.mem0.values import Record, mappings, model_of, turns
from memtrace_otel.instrumentation.steps import Step
from memtrace_otel.model import make_ref
from memtrace_otel.semconv import Action, Incomplete, OpKind, RefKind, Role

EXTRACTION_PROMPT = make_ref(RefKind.PROMPT, "mem0.fact_extraction")
PROCEDURAL_PROMPT = make_ref(RefKind.PROMPT, "mem0.procedural_memory")
DECISION_PROMPT = make_ref(RefKind.PROMPT, "mem0.update_decision")
_DECISION = "update_memory_decision"


def add_to_vector_store(call: Call) -> Step:
    """`_add_to_vector_store`: the pipeline of `add`. Duplicates that Mem0 drops become NONE outputs (2.x)."""
    session = session_of(call.instance)
    arguments = call.arguments()
    if session is None or not arguments.get("infer"):
        return
    session.turns = turns(arguments.get("messages"), session.said_in)
    session.neighbours = {}
    session.next_reply = extract
    stored = yield
    if call.patches.decides:
        if session.prompted is None:  # without facts Mem0 does not ask the model for a decision
            operation = call.open(None, OpKind.DECIDE, scope=session.scope, purpose=_DECISION, current=False)
            if session.replied is not None:
                session.replied.read_by(operation)
        return
    kept = {item.get("memory") for item in stored}
    twins = {record.text: record for records in session.neighbours.values() for record in records}
    for text in session.facts:
        twin = twins.get(text)
        if twin is not None and text not in kept:
            session.operation.wrote(twin.ref, action=Action.NONE, content=text)


def create_procedural_memory(call: Call) -> Step:
    """`_create_procedural_memory`: a model summarises the messages, and the summary is stored."""
    session = session_of(call.instance)
    if session is None:
        return
    session.turns = turns(call.arguments().get("messages"), session.said_in)
    session.next_reply = summarise
    yield


def save_messages(call: Call) -> Step:
    """`save_messages` (2.x): stored at the end of an `add`, for later extractions."""
    session = provider_session(call, "db")
    if session is not None:
        yield
        call.patches.messages.save(session.scope, str(call.arguments().get("session_scope")), session.turns)


def get_last_messages(call: Call) -> Step:
    """`get_last_messages` (2.x): the messages of earlier calls, for an extraction."""
    session = provider_session(call, "db")
    if session is not None:
        rows = mappings((yield))
        session.history = call.patches.messages.find(session.scope, str(call.arguments().get("session_scope")), rows)


def generate_response(call: Call) -> Step:
    """A call of the language model: runs the step that the prompt builder selected."""
    session = provider_session(call, "llm")
    if session is None:
        yield from graph.generate_response(call)
    elif session.next_reply is not None:
        step, session.next_reply = session.next_reply, None
        yield from step(call)


def additive_extraction_prompt(call: Call) -> Step:
    """`generate_additive_extraction_prompt` (2.x): the memories and instructions that the extraction sees."""
    session = SESSION.get()
    if session is None:
        return
    found = [record for records in (session.neighbours or {}).values() for record in records]
    session.considered = {str(number): record for number, record in enumerate(found)}
    session.instructions = str(call.arguments().get("custom_instructions") or "")
    yield


def extract(call: Call) -> Step:
    """The reply that holds the facts: prompt, messages, earlier messages and memories in, facts out."""
    session = cast(Session, SESSION.get())
    operation, asking = _open_with_model_call(call, OpKind.EXTRACT, session, "extract_facts")
    sources = _read_conversation(call, session, operation, EXTRACTION_PROMPT)
    considered = _read_considered(session, operation)
    _read_conversation(call, session, asking, EXTRACTION_PROMPT)
    reply = yield
    session.replied = _end_model_call(asking, reply)
    sources.append(session.replied.read_by(operation))
    found = replies.facts(call.patches.main, reply)
    if found is None:
        operation.mark(Incomplete.UNPARSED)
    for fact in found or []:
        if fact.text not in session.facts:
            session.facts.append(fact.text)
            linked = [considered[id] for id in fact.linked if id in considered]
            _derive(operation, session, fact.text, [*sources, *linked])


def summarise(call: Call) -> Step:
    """The reply of a procedural memory: prompt and messages in, the summary as one fact out."""
    session = cast(Session, SESSION.get())
    operation, asking = _open_with_model_call(call, OpKind.EXTRACT, session, "create_procedural_memory")
    _read_conversation(call, session, operation, PROCEDURAL_PROMPT)
    _read_conversation(call, session, asking, PROCEDURAL_PROMPT)
    reply = yield
    _end_model_call(asking, reply).read_by(operation)
    summary = call.patches.main.remove_code_blocks(reply) if isinstance(reply, str) else ""
    if summary:
        _derive(operation, session, summary, None)


def decision_prompt(call: Call) -> Step:
    """`get_update_memory_messages` (1.x): template, facts and memories in, the prompt out.

    Temporary ids number the distinct neighbours in the order of the searches, fact by fact.
    """
    session = SESSION.get()
    if session is None or session.neighbours is None:
        return
    arguments = call.arguments()
    session.facts = [str(fact) for fact in cast(list[object], arguments.get("response_content") or [])]
    found = {record.id: record for fact in session.facts for record in session.neighbours.get(fact, [])}
    session.considered = {str(number): record for number, record in enumerate(found.values())}
    template = getattr(importlib.import_module("mem0.configs.prompts"), "DEFAULT_UPDATE_MEMORY_PROMPT", "")
    session.instructions = str(arguments.get("custom_update_memory_prompt") or template)
    session.next_reply = decide
    operation = call.open(None, OpKind.OTHER, scope=session.scope, purpose="get_update_memory_messages")
    _read_case(session, operation)
    prompt = yield
    ref = variable_ref(RefKind.PROMPT, prompt)
    operation.wrote(ref, role=Role.PROMPT, content=prompt)
    session.prompted = Known(ref, prompt, Role.PROMPT, operation.origin)


def decide(call: Call) -> Step:
    """The reply with the decisions (1.x): facts and memories in, one output per item, with action.

    The output of a write is a fact, which the write reads later. The output of NONE is the unchanged record.
    """
    session = cast(Session, SESSION.get())
    operation, asking = _open_with_model_call(call, OpKind.DECIDE, session, _DECISION)
    prompt, facts, considered = _read_case(session, operation)
    if session.prompted is not None:
        session.prompted.read_by(asking)
    reply = yield
    base = [prompt, _end_model_call(asking, reply).read_by(operation)]
    found = replies.verdicts(call.patches.main, reply)
    if found is None:
        operation.mark(Incomplete.UNPARSED)
    for verdict in found or []:
        record = None if verdict.event == Action.ADD else session.considered.get(verdict.temporary_id)
        fed_by = [*base, *([facts[verdict.text]] if verdict.text in facts else facts.values())]
        if record is not None:
            fed_by.append(considered[verdict.temporary_id])
        if verdict.event == Action.NONE:
            if record is not None:
                operation.wrote(record.ref, action=Action.NONE, content=verdict.text, sources=fed_by)
        elif verdict.event in (Action.ADD, Action.UPDATE, Action.DELETE):
            if record is None and verdict.event != Action.ADD:
                operation.mark(Incomplete.UNKNOWN_RECORD)  # Mem0 drops the item
            _decided(session, operation, verdict, record, fed_by)
        else:
            operation.mark(Incomplete.UNPARSED)


def _decided(
    session: Session, operation: Operation, verdict: replies.Verdict, record: Record | None, sources: list[int]
) -> None:
    ref = variable_ref(RefKind.FACT, verdict.text)
    operation.wrote(ref, action=verdict.event, content=verdict.text, sources=sources)
    known = Known(ref, verdict.text, origin=operation.origin)
    if not session.variable_of(verdict.text):  # a text that the model changed
        session.learn(verdict.text, known)
    session.decisions.append(Decision(verdict.event, record.id if record else "", known))


def _open_with_model_call(call: Call, kind: OpKind, session: Session, purpose: str) -> tuple[Operation, Operation]:
    """Open the operation that reads a reply, and the model call inside the operation."""
    model = model_of(call.instance)
    operation = call.open(None, kind, scope=session.scope, purpose=purpose, attributes=model)
    asking = call.open(
        None, OpKind.OTHER, scope=session.scope, purpose="generate_response", attributes=model, current=False
    )
    return operation, asking


def _end_model_call(asking: Operation, reply: object) -> Known:
    """Record the reply and end the model call."""
    ref = variable_ref(RefKind.COMPLETION, reply)
    asking.wrote(ref, content=reply)
    asking.end()
    return Known(ref, reply, origin=asking.origin)


def _read_conversation(call: Call, session: Session, operation: Operation, prompt: str) -> list[int]:
    read = [operation.read(prompt, role=Role.PROMPT, content=_system_prompt(call, session))]
    read += [operation.read(turn.ref, role=Role.MESSAGE, content=turn.content) for turn in session.turns]
    return read + [operation.read(turn.ref, role=Role.HISTORY, content=turn.content) for turn in session.history]


def _read_considered(session: Session, operation: Operation) -> dict[str, int]:
    """Record the memories that the model is shown; returns their input index by temporary id."""
    return {number: session.read(operation, record, Role.CANDIDATE) for number, record in session.considered.items()}


def _read_case(session: Session, operation: Operation) -> tuple[int, Mapping[str, int], Mapping[str, int]]:
    """Record the inputs of a decision; returns the input index of the template, of each fact, of each memory."""
    prompt = operation.read(DECISION_PROMPT, role=Role.PROMPT, content=session.instructions)
    facts = {text: known.read_by(operation) for text in session.facts for known in session.variable_of(text)}
    return prompt, facts, _read_considered(session, operation)


def _derive(operation: Operation, session: Session, text: str, sources: list[int] | None) -> None:
    ref = variable_ref(RefKind.FACT, text)
    operation.wrote(ref, content=text, sources=sources, event_time=session.event_time)
    session.learn(text, Known(ref, text, origin=operation.origin))


def _system_prompt(call: Call, session: Session) -> str:
    messages = mappings(call.arguments().get("messages"))
    system = next((str(message.get("content")) for message in messages if message.get("role") == "system"), "")
    return f"{system}\n\n{session.instructions}" if session.instructions else system
