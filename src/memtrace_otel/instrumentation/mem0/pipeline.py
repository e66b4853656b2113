"""What `add` does with the messages: one pipeline for conversations, one for procedural memory."""

from __future__ import annotations

from memtrace_otel.instrumentation.mem0.calls import Call
from memtrace_otel.instrumentation.mem0.decision import nothing_to_decide
from memtrace_otel.instrumentation.mem0.extraction import extract, summarise
from memtrace_otel.instrumentation.mem0.session import session_of
from memtrace_otel.instrumentation.mem0.variables import turns
from memtrace_otel.instrumentation.steps import Step
from memtrace_otel.semconv import Action


def add_to_vector_store(call: Call) -> Step:
    """`_add_to_vector_store`: the pipeline of `add`. Duplicates that it drops in silence become NONE outputs."""
    session = session_of(call.instance)
    arguments = call.arguments()
    if session is None or not arguments.get("infer"):
        return
    session.turns = turns(arguments.get("messages"), session.said_in)
    session.neighbours = {}
    session.next_reply = extract
    stored = yield
    if call.patches.decides:  # its decisions say what it drops
        if session.prompted is None:
            nothing_to_decide(call, session)
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
    session.turns = turns(call.arguments().get("messages"), session.said_in)
    session.next_reply = summarise
    yield
