"""The calls of a Memory's language model, and what is cut out of their replies before Mem0 reads them.

Mem0 calls the model from the middle of long methods. The wrapped prompt builders tell what the next reply will be, the
wrapped model call reads it. Prompt, reply and what is read from it are three steps, so that each depends on the one
before.
"""

from __future__ import annotations

from memtrace_otel import semconv
from memtrace_otel.capture import Operation, variable_ref
from memtrace_otel.instrumentation.mem0 import graph, replies
from memtrace_otel.instrumentation.mem0.calls import Call
from memtrace_otel.instrumentation.mem0.session import Known, Session, provider_session
from memtrace_otel.instrumentation.mem0.variables import model_of
from memtrace_otel.instrumentation.steps import Step
from memtrace_otel.semconv import OpKind, RefKind, Role


def generate_response(call: Call) -> Step:
    """A call of the memory's language model: what its reply means was said before."""
    session = provider_session(call, "llm")
    if session is None:
        yield from graph.generate_response(call)
        return
    if session.next_reply is None:
        return
    step, session.next_reply = session.next_reply, None
    yield from step(call)


def open_with_model_call(call: Call, kind: OpKind, scope: str, purpose: str) -> tuple[Operation, Operation]:
    """Open what is done with a reply, and inside it the model call that gives the reply."""
    model = model_of(call.instance)
    operation = call.open(None, kind, scope=scope, purpose=purpose, attributes=model)
    asking = call.open(None, OpKind.OTHER, scope=scope, purpose="generate_response", attributes=model, current=False)
    return operation, asking


def replied(call: Call, asking: Operation, reply: object, *, is_json: bool = True) -> Known:
    """Record the reply and end its call; returns the text that Mem0 reads, with a step for each thing cut away."""
    read = _write(asking, reply)
    for function, text in replies.cleanings(call.patches.main, reply, is_json=is_json):
        cleaning = call.open(
            None,
            OpKind.OTHER,
            scope=asking.scope,
            purpose=function,
            attributes={semconv.CODE_FUNCTION_NAME: f"{call.patches.main.__name__}.{function}"},
            current=False,
        )
        read.read_by(cleaning)
        read = _write(cleaning, text)
    return read


def consider(session: Session, operation: Operation) -> dict[str, int]:
    """Record the memories that the model is shown; returns their input index by temporary id."""
    return {number: session.read(operation, record, Role.CANDIDATE) for number, record in session.considered.items()}


def _write(operation: Operation, text: object) -> Known:
    ref = variable_ref(RefKind.COMPLETION, text)
    operation.wrote(ref, content=text)
    operation.end()
    return Known(ref, text, origin=operation.origin)
