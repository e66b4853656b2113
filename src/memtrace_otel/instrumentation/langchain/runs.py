"""LangChain's runs: the spans that tracers among its callbacks keep for a run without making them current.

OpenInference does; whoever makes its span current is found without this (`capture.adoption`).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, cast

from opentelemetry.trace import Span

from memtrace_otel.instrumentation.langchain.calls import Call
from memtrace_otel.instrumentation.steps import Step

_started: ContextVar[Any] = ContextVar("memtrace_langchain_run", default=None)


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
