"""The model calls of EverOS: prompt, reply and tokens are recorded on the operation that asks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

from memtrace_otel import semconv
from memtrace_otel.capture import Operation, current_operation, variable_ref
from memtrace_otel.instrumentation.everos.state import ASKING, Asking, Call
from memtrace_otel.instrumentation.everos.values import message_text, value
from memtrace_otel.instrumentation.steps import Step
from memtrace_otel.model import make_ref
from memtrace_otel.semconv import Incomplete, RefKind, Role


def chat(call: Call) -> Step:
    """`chat` of an LLM client: the sent prompt in, the completion out.

    EverOS asks again, without an error, when a call fails or a reply cannot be parsed.
    """
    step = _step(call)
    if step is None:
        return
    operation, asking = step
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
    tokens = value(reply, "usage")
    if tokens is not None:
        asking.given = (asking.given or 0) + int(tokens.prompt_tokens)
        asking.made = (asking.made or 0) + int(tokens.completion_tokens)
        _show_tokens(operation, asking)


def chat_counted(call: Call) -> Step:
    """`UsageRecordingClient.chat`: sets the tokens again, because EverOS overwrites them on the current span."""
    step = _step(call)
    if step is not None:
        yield
        _show_tokens(*step)


def _step(call: Call) -> tuple[Operation, Asking] | None:
    """The operation of EverOS that asks a model, and its calls."""
    operation, asking = current_operation(), ASKING.get()
    if operation is None or asking is None or operation.system != call.patches.system:
        return None
    return operation, asking


def _show_tokens(operation: Operation, asking: Asking) -> None:
    if asking.given is not None and asking.made is not None:
        operation.set(semconv.GEN_AI_USAGE_INPUT_TOKENS, asking.given)
        operation.set(semconv.GEN_AI_USAGE_OUTPUT_TOKENS, asking.made)
