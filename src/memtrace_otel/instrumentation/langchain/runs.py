"""LangChain's runs: which turn each is part of, and the spans that tracers among the callbacks keep for a run.

OpenInference keeps them without making them current; who makes his current is found by `capture.adoption` alone.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any, cast
from weakref import WeakKeyDictionary, WeakValueDictionary

from opentelemetry import trace
from opentelemetry.trace import Span

from memtrace_otel.capture import recall
from memtrace_otel.instrumentation.langchain.calls import Call
from memtrace_otel.instrumentation.steps import Step

_started: ContextVar[Any] = ContextVar("memtrace_langchain_run", default=None)


class Turns:
    """The turns of the chains under way that no span is around: a chain without a parent is a turn, what runs below it
    belongs to that. A run is known as long as the library holds its run manager."""

    def __init__(self) -> None:
        self._runs: WeakValueDictionary[object, Any] = WeakValueDictionary()
        self._turns: WeakKeyDictionary[Any, recall.Turn] = WeakKeyDictionary()

    def __len__(self) -> int:
        return len(self._runs)

    def of(self, run_id: object) -> recall.Turn | None:
        """The turn that a run is part of."""
        run = self._runs.get(run_id)
        return None if run is None else self._turns.get(run)

    def keep(self, run: Any, turn: recall.Turn) -> None:
        """Note the turn of a run that has started."""
        self._turns[run] = turn
        self._runs[run.run_id] = run


def chain_starts(call: Call) -> Step:
    """`on_chain_start` of a callback manager: the outermost chain is a turn. Its parts run in copies of the context, so
    without a span around it none would know what another has retrieved."""
    turn = _join(call)
    outermost = getattr(call.instance, "parent_run_id", None) is None
    if outermost and not trace.get_current_span().get_span_context().is_valid:
        turn = recall.share_turn()
    run = yield
    if turn is not None:
        call.patches.turns.keep(run, turn)


def part_starts(call: Call) -> Step:
    """`on_retriever_start`, `on_tool_start`: what follows in this context is of the turn of the chain around it."""
    _join(call)
    yield


def chat_model_starts(call: Call) -> Step:
    """`on_chat_model_start` of a callback manager: `stream` keeps the run to itself, the model is called next."""
    _join(call)
    runs = yield
    _started.set(runs[0] if isinstance(runs, list) and runs else None)


def _join(call: Call) -> recall.Turn | None:
    """Make the turn of the chain around a run that of this context: a batch runs one step of all its chains, then the
    next, in contexts that know nothing of the chain."""
    turn = call.patches.turns.of(getattr(call.instance, "parent_run_id", None))
    return None if turn is None else recall.share_turn(turn)


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
