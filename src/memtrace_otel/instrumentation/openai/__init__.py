"""OpenAI instrumentor: model calls that answer become `respond` spans, calls that judge an answer `judge` spans; the
history that a conversation repeats is its memory.

A call made inside another memtrace operation (Mem0's own extraction, for example) is a step of that operation and gets
no span here. A call that another instrumentation records is enriched (`capture.adoption`).
"""

from __future__ import annotations

from typing import Any

from memtrace_otel.capture import current_operation, guard
from memtrace_otel.capture.adoption import mark_step
from memtrace_otel.capture.finalizers import report_waiting
from memtrace_otel.instrumentation.base import MemoryInstrumentor, Patches
from memtrace_otel.instrumentation.chat_history.caller import ABOVE, RECORDED_PACKAGES
from memtrace_otel.instrumentation.chat_history.messages import ModelReply
from memtrace_otel.instrumentation.chat_history.model_call import SYSTEM, Compaction, ModelCall, is_answer
from memtrace_otel.instrumentation.openai.payloads import compacted, parsed, read_reply, read_request
from memtrace_otel.instrumentation.openai.streams import Done, observed
from memtrace_otel.instrumentation.steps import Call, Step
from memtrace_otel.semconv import Incomplete

__all__ = ["OpenAIInstrumentor"]


class OpenAIInstrumentor(MemoryInstrumentor):
    """Instruments chat completions and responses of the `openai` package, sync and async, streamed or not."""

    system = SYSTEM
    requirement = "openai>=1.66,<4"

    def patch(self, patches: Patches) -> None:
        """Wrap the one method that every API of a client ends in: inside of what other instrumentations wrap."""
        points = {"SyncAPIClient.request": model_call, "AsyncAPIClient.request": model_call}
        RECORDED_PACKAGES.add(SYSTEM)
        patches.apply({"openai._base_client": points})

    def _uninstrument(self, **kwargs: Any) -> None:
        report_waiting()
        RECORDED_PACKAGES.discard(SYSTEM)
        super()._uninstrument(**kwargs)


def model_call(call: Call[Patches]) -> Step:
    """One request of a client. What is no question to a model, or a step of another operation, is left alone."""
    report_waiting()
    if not is_answer():
        mark_step(current_operation())
        return
    request = read_request(call.arguments().get("options"))
    if request is None:
        return
    if request.compacts:
        compaction = Compaction(request, call.patches.tracer)
        call.begin(compaction.operation)
        result = yield
        compaction.finish(read_reply(result), compacted(parsed(result)))
        return
    above = ABOVE.get()
    asked = ModelCall(above.name(request) if above else request, call.patches.tracer)
    if above:
        above.call = asked
    call.begin(asked.operation, on_error=asked.fail)
    result = yield
    stream = observed(result, when_over(asked)) if request.stream else None
    if stream is not None:
        call.detach(asked.operation)  # the call has returned, its text comes later
        call.hand_out(stream)
    else:
        asked.finish(read_reply(result))


def when_over(asked: ModelCall) -> Done:
    """What is to be done when the stream of a call is over."""

    def done(reply: ModelReply, error: BaseException | None) -> None:
        asked.operation.mark(Incomplete.GUARD)
        with guard("openai.end"):
            asked.finish(reply)
            asked.operation.unmark(Incomplete.GUARD)
        asked.operation.end(error)

    return done
