"""What happens inside `add`: extraction, and in 1.x the decision what to do with the extracted facts.

Mem0 calls the language model from the middle of long methods. The wrapped prompt builders tell what the next reply will
be, the wrapped model call reads it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

from memtrace_otel.capture import Operation, variable_ref
from memtrace_otel.instrumentation.mem0 import replies
from memtrace_otel.instrumentation.mem0.calls import Call
from memtrace_otel.instrumentation.mem0.session import SESSION, Decision, Known, Session, provider_session, session_of
from memtrace_otel.instrumentation.mem0.variables import Record, model_of, turns
from memtrace_otel.instrumentation.steps import Step
from memtrace_otel.model import make_ref
from memtrace_otel.semconv import Action, Incomplete, OpKind, RefKind, Role

EXTRACTION_PROMPT = make_ref(RefKind.PROMPT, "mem0.fact_extraction")
DECISION_PROMPT = make_ref(RefKind.PROMPT, "mem0.update_decision")
PROCEDURAL_PROMPT = make_ref(RefKind.PROMPT, "mem0.procedural_memory")


def add_to_vector_store(call: Call) -> Step:
    """`_add_to_vector_store`: the pipeline of `add`. Duplicates that it drops in silence become NONE outputs."""
    session = session_of(call.instance)
    arguments = call.arguments()
    if session is None or not arguments.get("infer"):
        return
    session.turns = list(turns(arguments.get("messages")))
    session.neighbours = {}
    session.next_reply = extract
    stored = yield
    if session.decisions:
        return
    kept = {item.get("memory") for item in stored}
    twins = {record.text: record for records in session.neighbours.values() for record in records}
    for text in session.facts:
        twin = twins.get(text)
        if twin is not None and text not in kept:
            session.operation.wrote(twin.ref, action=Action.NONE, content=text)


def create_procedural_memory(call: Call) -> Step:
    """`_create_procedural_memory`: a model summarises the messages, the summary is stored."""
    session = session_of(call.instance)
    if session is None:
        return
    arguments = call.arguments()
    session.turns = list(turns(arguments.get("messages")))
    session.next_reply = summarise
    yield


def additive_extraction_prompt(call: Call) -> Step:
    """`generate_additive_extraction_prompt` (2.x): which earlier messages and memories the extraction sees."""
    session = SESSION.get()
    if session is None:
        return
    arguments = call.arguments()
    session.history = list(turns(arguments.get("last_k_messages") or []))
    found = [record for records in (session.neighbours or {}).values() for record in records]
    session.considered = {str(number): record for number, record in enumerate(found)}
    session.instructions = str(arguments.get("custom_instructions") or "")
    yield


def decision_prompt(call: Call) -> Step:
    """`get_update_memory_messages` (1.x): which facts and memories the decision sees. Temporary ids count the distinct
    neighbours in the order in which the searches, fact by fact, returned them."""
    session = SESSION.get()
    if session is None or session.neighbours is None:
        return
    arguments = call.arguments()
    facts = cast(list[object], arguments.get("response_content") or [])
    distinct: dict[str, Record] = {}
    for fact in facts:
        for record in session.neighbours.get(str(fact), []):
            distinct[record.id] = record
    session.considered = {str(number): record for number, record in enumerate(distinct.values())}
    session.facts = [str(fact) for fact in facts]
    custom = arguments.get("custom_update_memory_prompt")
    session.instructions = str(custom or call.patches.default_decision_prompt)
    session.next_reply = decide
    yield


def generate_response(call: Call) -> Step:
    """A call of the memory's language model: what its reply means was said before."""
    session = provider_session(call, "llm")
    if session is None or session.next_reply is None:
        return
    step, session.next_reply = session.next_reply, None
    yield from step(call)


def extract(call: Call) -> Step:
    """The reply that holds the facts: messages, earlier messages and memories in, completion and facts out."""
    session = cast(Session, SESSION.get())
    operation = _open(call, session, OpKind.EXTRACT)
    sources = [operation.read(EXTRACTION_PROMPT, role=Role.PROMPT, content=_system_prompt(call, session))]
    sources += [operation.read(turn.ref, role=Role.MESSAGE, content=turn.content) for turn in session.turns]
    sources += [operation.read(turn.ref, role=Role.HISTORY, content=turn.content) for turn in session.history]
    considered = _consider(operation, session)
    reply = yield
    operation.wrote(variable_ref(RefKind.COMPLETION, reply), content=reply)
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
    """The reply that is itself the memory (procedural memory): messages in, completion and one fact out."""
    session = cast(Session, SESSION.get())
    operation = _open(call, session, OpKind.EXTRACT)
    operation.read(PROCEDURAL_PROMPT, role=Role.PROMPT, content=_system_prompt(call, session))
    for turn in session.turns:
        operation.read(turn.ref, role=Role.MESSAGE, content=turn.content)
    reply = yield
    operation.wrote(variable_ref(RefKind.COMPLETION, reply), content=reply)
    summary = call.patches.main.remove_code_blocks(reply)
    if summary:
        _derive(operation, session, summary, None)


def decide(call: Call) -> Step:
    """The reply that says what to do with which record (1.x): facts and memories in, one output per item, with action.

    A fact stands for what is to be written; the write that follows reads it. NONE names the record left alone.
    """
    session = cast(Session, SESSION.get())
    operation = _open(call, session, OpKind.DECIDE)
    prompt = operation.read(DECISION_PROMPT, role=Role.PROMPT, content=session.instructions)
    facts = {text: known.read_by(operation) for text in session.facts for known in session.knows(text)}
    considered = _consider(operation, session)
    reply = yield
    operation.wrote(variable_ref(RefKind.COMPLETION, reply), content=reply)
    found = replies.verdicts(call.patches.main, reply)
    if found is None:
        operation.mark(Incomplete.UNPARSED)
    for verdict in found or []:
        record = None if verdict.event == Action.ADD else session.considered.get(verdict.temporary_id)
        fed_by = [facts[verdict.text]] if verdict.text in facts else list(facts.values())
        if record is not None:
            fed_by.append(considered[verdict.temporary_id])
        if verdict.event == Action.NONE:
            if record is not None:
                operation.wrote(record.ref, action=Action.NONE, content=verdict.text, sources=fed_by)
        elif verdict.event in (Action.ADD, Action.UPDATE, Action.DELETE):
            if record is None and verdict.event != Action.ADD:
                operation.mark(Incomplete.UNKNOWN_RECORD)  # Mem0 drops the item
            ref = variable_ref(RefKind.FACT, verdict.text)
            operation.wrote(ref, action=verdict.event, content=verdict.text, sources=[prompt, *fed_by])
            known = Known(ref, verdict.text, origin=operation.origin)
            if not session.knows(verdict.text):  # a text that the model rewrote
                session.learn(verdict.text, known)
            session.decisions.append(Decision(verdict.event, record.id if record else "", known))
        else:
            operation.mark(Incomplete.UNPARSED)


def _open(call: Call, session: Session, kind: OpKind) -> Operation:
    return call.open(None, kind, scope=session.scope, attributes=model_of(call.instance))


def _consider(operation: Operation, session: Session) -> dict[str, int]:
    """Record the memories that the model is shown; returns their input index by temporary id."""
    return {
        number: operation.read(record.ref, role=Role.CANDIDATE, content=record.text, scope=record.scope or None)
        for number, record in session.considered.items()
    }


def _derive(operation: Operation, session: Session, text: str, sources: list[int] | None) -> None:
    ref = variable_ref(RefKind.FACT, text)
    operation.wrote(ref, content=text, sources=sources, event_time=session.event_time)
    session.learn(text, Known(ref, text, origin=operation.origin))


def _system_prompt(call: Call, session: Session) -> str:
    messages = cast(list[Mapping[str, Any]], call.arguments().get("messages") or [])
    system = next((str(message.get("content")) for message in messages if message.get("role") == "system"), "")
    return f"{system}\n\n{session.instructions}" if session.instructions else system
