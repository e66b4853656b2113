"""OpenAI instrumentor: a model call is a `respond` span, a call that judges an answer is a `judge` span.

The history that a conversation repeats is recorded as its memory (`chat_history`). A call inside another memtrace
operation (Mem0's extraction) is a step of that operation and gets no span. A call that another instrumentation records
is enriched (`capture.adoption`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opentelemetry.trace import Tracer

from memtrace_otel.capture import current_operation, guard
from memtrace_otel.capture.adoption import mark_step
from memtrace_otel.capture.finalizers import report_waiting
from memtrace_otel.instrumentation.base import MemoryInstrumentor, Patches
from memtrace_otel.instrumentation.chat_history.messages import ModelReply
from memtrace_otel.instrumentation.chat_history.model_call import CALLER, RECORDED_PACKAGES, ModelCall, is_answer
from memtrace_otel.instrumentation.openai import agents
from memtrace_otel.instrumentation.openai.payloads import read_reply, read_request
from memtrace_otel.instrumentation.openai.streams import observed
from memtrace_otel.instrumentation.openai.suppression import lifting
from memtrace_otel.instrumentation.steps import Call, Step, StepFunction
from memtrace_otel.semconv import Incomplete

__all__ = ["OpenAIInstrumentor"]


SYSTEM = "openai"


class OpenAIInstrumentor(MemoryInstrumentor):
    """Instruments chat completions and responses of the `openai` package, sync and async, streamed or not."""

    system = SYSTEM
    requirement = "openai>=1.66,<4"

    def make_patches(self, tracer: Tracer) -> Patches:
        """Patches that count suppressed model calls."""
        return _Patches(tracer, self.system)

    def patch(self, patches: Patches) -> None:
        """Wrap the method that every API of a client calls, below the wrappers of other instrumentations.

        The runs of the Agents SDK are turns.
        """
        RECORDED_PACKAGES.add(SYSTEM)
        patches.apply({"openai": {}, **agents.POINTS})
        patches.when_imported("openai._base_client", lambda module: _wrap_clients(module, patches))

    def _uninstrument(self, **kwargs: Any) -> None:
        report_waiting()
        RECORDED_PACKAGES.discard(SYSTEM)
        super()._uninstrument(**kwargs)


class _Patches(Patches):
    def wrapper(self, step: StepFunction) -> Callable[..., Any]:
        """The wrapper that runs `step`, also inside a model call of another instrumentation."""
        return lifting(super().wrapper(step))

    def note_suppressed(self, call: Call[Any]) -> None:
        """Count a model call, no other request."""
        if read_request(call.arguments().get("options")) is not None:
            super().note_suppressed(call)


def _wrap_clients(module: Any, patches: Patches) -> None:
    for client in (module.SyncAPIClient, module.AsyncAPIClient):
        patches.wrap_within(client, "request", model_call)


def model_call(call: Call[Patches]) -> Step:
    """One request of a client; requests that ask no model, and steps of another operation, are not recorded."""
    report_waiting()
    if not is_answer():
        mark_step(current_operation())
        return
    request = read_request(call.arguments().get("options"))
    if request is None:
        return
    caller = CALLER.get()
    asked = ModelCall(caller.name(request) if caller else request, call.patches.tracer, SYSTEM, SYSTEM)

    def finish(reply: ModelReply | None) -> None:
        asked.finish(reply)
        if caller:
            caller.reply = asked.reply

    def end_stream(reply: ModelReply, error: BaseException | None) -> None:
        asked.operation.mark(Incomplete.GUARD)
        with guard("openai.end"):
            finish(reply)
            asked.operation.unmark(Incomplete.GUARD)
        asked.operation.end(error)

    call.begin(asked.operation, on_error=asked.fail)
    result = yield
    stream = observed(result, end_stream) if request.stream else None
    if stream is None:
        finish(read_reply(result))
    else:
        call.detach(asked.operation)  # the stream ends after the call
        call.hand_out(stream)
