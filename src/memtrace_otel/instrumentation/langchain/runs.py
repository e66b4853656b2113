"""Runs of LangChain: the turn of each run, and the span that another instrumentation keeps for a run.

OpenInference keeps spans in a callback handler without making them current. `capture.adoption` finds current spans.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from typing import Any, cast

from opentelemetry import trace
from opentelemetry.trace import Span

from memtrace_otel.capture import recall
from memtrace_otel.instrumentation.chat_history.messages import get
from memtrace_otel.instrumentation.langchain.messages import message_of, sources
from memtrace_otel.instrumentation.langchain.state import Call, Run
from memtrace_otel.instrumentation.steps import Step

_started: ContextVar[Any] = ContextVar("memtrace_langchain_run", default=None)


def chain_starts(call: Call) -> Step:
    """`on_chain_start` of a callback manager: the outermost chain is a turn.

    The parts of a chain run in copies of the context; without a span around the chain only the shared turn joins them.
    """
    around = _join(call)
    turn = around.turn if around else None
    outermost = getattr(call.instance, "parent_run_id", None) is None
    if outermost and not trace.get_current_span().get_span_context().is_valid:
        turn = recall.share_turn()
    yield from _start(call, around, turn)


def part_starts(call: Call) -> Step:
    """`on_retriever_start`, `on_tool_start`: this context joins the turn of the chain around it."""
    around = _join(call)
    yield from _start(call, around, around.turn if around else None)


def run_ends(call: Call) -> Step:
    """`on_chain_end`, `on_chain_error` and similar methods: the turn ends with the outermost chain."""
    run = call.patches.runs.find(call.instance.run_id)
    if run is not None and len(run.place) == 1:
        if turn := run.turn or recall.turn_here():
            turn.returns(_texts(call.arguments().get("outputs")))
        if run.turn is not None:
            recall.unshare_turn(run.turn)
    if run is not None and recall.place.get()[: len(run.place)] == run.place:
        recall.place.set(run.place[:-1])
    yield


def tool_ends(call: Call) -> Step:
    """`on_tool_end`: a tool result that quotes hits of its searches has the searches as sources."""
    run, turn = call.patches.runs.find(call.instance.run_id), recall.turn_here()
    if run is not None and turn is not None:
        searched = [done for done in turn.retrievals() if done.place[: len(run.place)] == run.place]
        for answer in _answers(call.arguments().get("output")) if searched else ():
            text, asked = message_of(answer).text, get(answer, "tool_call_id")
            told = recall.fold(text)
            found = [done for done in searched if any(recall.quotes(told, recall.fold(h.text)) for h in done.hits())]
            sources.note_result(turn, str(asked), text, tuple((done.context, done.origin) for done in found))
    yield from run_ends(call)


def _answers(output: Any) -> list[Any]:
    """The messages of a tool's output: one, several, or those of a state update."""
    given = get(get(output, "update"), "messages") or output
    messages = cast(list[Any], given if isinstance(given, list) else [given])
    return [message for message in messages if get(message, "tool_call_id")]


def _texts(outputs: Any) -> list[str]:
    """The texts that a run returned: the last message of its state, else every text."""
    state = cast(Mapping[str, Any], outputs) if isinstance(outputs, Mapping) else {"output": outputs}
    messages = state.get("messages")
    given = cast(list[Any], messages)[-1:] if isinstance(messages, list) else list(state.values())
    return [one if isinstance(one, str) else message_of(one).text for one in given if one is not None]


def _start(call: Call, around: Run | None, turn: recall.Turn | None) -> Step:
    manager = yield
    place = (*(around.place if around else ()), manager.run_id)
    recall.place.set(place)
    call.patches.runs.keep(manager, Run(place, turn))


def model_starts(call: Call) -> Step:
    """`on_chat_model_start`, `on_llm_start` of a callback manager: `stream` keeps the run, the model is called next."""
    _join(call)
    runs = yield
    _started.set(runs[0] if isinstance(runs, list) and runs else None)


def _join(call: Call) -> Run | None:
    """Set the place and the turn of the chain around a run in this context. A batch runs each step of all its chains in
    contexts without the chain."""
    run = call.patches.runs.find(getattr(call.instance, "parent_run_id", None))
    if run is not None:
        recall.place.set(run.place)
        if run.turn is not None:
            recall.share_turn(run.turn)
    return run


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
