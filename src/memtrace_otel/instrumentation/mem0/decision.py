"""The decision inside `add` (1.x): what is to be done with extracted facts and the memories like them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from memtrace_otel.capture import Operation, variable_ref
from memtrace_otel.instrumentation.mem0 import replies
from memtrace_otel.instrumentation.mem0.calls import Call
from memtrace_otel.instrumentation.mem0.model_calls import consider, open_with_model_call, replied
from memtrace_otel.instrumentation.mem0.session import SESSION, Decision, Known, Session
from memtrace_otel.instrumentation.mem0.variables import Record
from memtrace_otel.instrumentation.steps import Step
from memtrace_otel.model import make_ref
from memtrace_otel.semconv import Action, Incomplete, OpKind, RefKind, Role

DECISION_PROMPT = make_ref(RefKind.PROMPT, "mem0.update_decision")
PURPOSE = "update_memory_decision"


def decision_prompt(call: Call) -> Step:
    """`get_update_memory_messages`: template, facts and memories in, the prompt made of them out.

    Temporary ids count the distinct neighbours in the order in which the searches, fact by fact, returned them.
    """
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
    operation = call.open(None, OpKind.OTHER, scope=session.scope, purpose="get_update_memory_messages")
    _read_case(session, operation)
    prompt = yield
    ref = variable_ref(RefKind.PROMPT, prompt)
    operation.wrote(ref, role=Role.PROMPT, content=prompt)
    session.prompted = Known(ref, prompt, Role.PROMPT, operation.origin)


def decide(call: Call) -> Step:
    """The reply that says what to do with which record: facts and memories in, one output per item, with action.

    A fact stands for what is to be written; the write that follows reads it. NONE names the record left alone.
    """
    session = cast(Session, SESSION.get())
    operation, asking = open_with_model_call(call, OpKind.DECIDE, session.scope, PURPOSE)
    prompt, facts, considered = _read_case(session, operation)
    if session.prompted is not None:
        session.prompted.read_by(asking)
    reply = yield
    base = [prompt, replied(call, asking, reply).read_by(operation)]
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
                operation.wrote(record.ref, action=Action.NONE, content=verdict.text, sources=[*base, *fed_by])
        elif verdict.event in (Action.ADD, Action.UPDATE, Action.DELETE):
            if record is None and verdict.event != Action.ADD:
                operation.mark(Incomplete.UNKNOWN_RECORD)  # Mem0 drops the item
            ref = variable_ref(RefKind.FACT, verdict.text)
            operation.wrote(ref, action=verdict.event, content=verdict.text, sources=[*base, *fed_by])
            known = Known(ref, verdict.text, origin=operation.origin)
            if not session.knows(verdict.text):  # a text that the model rewrote
                session.learn(verdict.text, known)
            session.decisions.append(Decision(verdict.event, record.id if record else "", known))
        else:
            operation.mark(Incomplete.UNPARSED)


def nothing_to_decide(call: Call, session: Session) -> None:
    """Record that a reply without facts led to no decision: Mem0 then does not ask the model."""
    operation = call.open(None, OpKind.DECIDE, scope=session.scope, purpose=PURPOSE, current=False)
    if session.replied is not None:
        session.replied.read_by(operation)


def _read_case(session: Session, operation: Operation) -> tuple[int, Mapping[str, int], Mapping[str, int]]:
    """Record what is to be decided upon; returns the inputs that are template, facts and memories."""
    prompt = operation.read(DECISION_PROMPT, role=Role.PROMPT, content=session.instructions)
    facts = {text: known.read_by(operation) for text in session.facts for known in session.knows(text)}
    return prompt, facts, consider(session, operation)
