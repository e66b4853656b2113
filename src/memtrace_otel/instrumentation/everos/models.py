"""The model calls of EverOS: prompt and reply belong to the step that asks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from memtrace_otel import semconv
from memtrace_otel.capture import current_operation, variable_ref
from memtrace_otel.instrumentation.everos.calls import Call
from memtrace_otel.instrumentation.everos.session import ASKING
from memtrace_otel.instrumentation.everos.variables import message_text, value
from memtrace_otel.instrumentation.steps import Step
from memtrace_otel.model import make_ref
from memtrace_otel.semconv import Incomplete, RefKind, Role


def chat(call: Call) -> Step:
    """`chat` of an LLM client: the prompt as it was sent in, the completion out.

    EverOS asks again when a reply cannot be parsed or the call failed, and says so in its log at most.
    """
    operation, asking = current_operation(), ASKING.get()
    if operation is None or asking is None or operation.system != call.patches.system:
        return
    asking.calls += 1
    if asking.once and asking.calls > 1:
        operation.mark(Incomplete.UNPARSED)
        operation.span.add_event(semconv.RETRY_EVENT, {semconv.RETRY_ATTEMPT: asking.calls})
    messages = cast(Sequence[object], call.arguments().get("messages") or ())
    prompt = make_ref(RefKind.PROMPT, f"{call.patches.system}.{asking.prompt}")
    operation.read(prompt, role=Role.PROMPT, content="\n\n".join(message_text(message) for message in messages))
    reply = yield
    text = str(value(reply, "content") or "")
    operation.wrote(variable_ref(RefKind.COMPLETION, text), content=text)
    model = value(reply, "model")
    if model:
        operation.set(semconv.GEN_AI_RESPONSE_MODEL, str(model))
