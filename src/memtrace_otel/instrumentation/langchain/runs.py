"""LangChain's runs: where a turn begins, and the spans that tracers among the callbacks keep for a run.

OpenInference keeps them without making them current; who makes his current is found by `capture.adoption` alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, cast

from opentelemetry import trace
from opentelemetry.trace import Span

from memtrace_otel.capture import recall
from memtrace_otel.instrumentation.langchain.calls import Call
from memtrace_otel.instrumentation.steps import Step

_started: ContextVar[Any] = ContextVar("memtrace_langchain_run", default=None)


def chain_starts(call: Call) -> Step:
    """`on_chain_start` of a callback manager: the outermost chain is a turn. Its parts run in copies of the context, so
    without a span around it none would know what another has retrieved."""
    inside = getattr(call.instance, "parent_run_id", None) is not None
    if not inside and not trace.get_current_span().get_span_context().is_valid:
        recall.share_turn()
    yield


def chat_model_starts(call: Call) -> Step:
    """`on_chat_model_start` of a callback manager: `stream` keeps the run to itself, the model is called next."""
    runs = yield
    _started.set(runs[0] if isinstance(runs, list) and runs else None)


def span_of_run(run_manager: Any = None) -> Span | None:
    """The span of another instrumentation for the run of this manager, or for the run that has just started."""
    run = run_manager or _started.get()
    _started.set(None)
    for handler in cast(Sequence[Any], getattr(run, "handlers", ())):
        find = getattr(handler, "get_span", None)
        span = find(getattr(run, "run_id", None)) if callable(find) else None
        if isinstance(span, Span):
            return span
    return None
