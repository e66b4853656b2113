"""Which turn is the one here: that of the current trace or, outside any, of the execution context."""

from __future__ import annotations

from contextvars import ContextVar

from opentelemetry import trace

from memtrace_otel.capture.recall.answers import Answer, lately
from memtrace_otel.capture.recall.choosing import answered_here, place, searched_here
from memtrace_otel.capture.recall.kept import kept
from memtrace_otel.capture.recall.turn import Turn, shared

_recent: ContextVar[Turn | None] = ContextVar("memtrace_recent_turn", default=None)
_outside: ContextVar[Turn | None] = ContextVar("memtrace_turn_outside_traces", default=None)  # the most recent of these


def share_turn(turn: Turn | None = None) -> Turn:
    """Make a turn, a new one when none is given, that of this context and of the copies made of it: for libraries that
    run the parts of a turn in copies, when no span is around the turn."""
    turn = turn or _next_turn()
    _recent.set(turn)
    if not turn.of_trace:
        _outside.set(turn)
    shared.set(turn)
    return turn


def unshare_turn(turn: Turn) -> None:
    """The turn is over: what follows in this context is another, which knows what this one has searched."""
    if shared.get() is turn:
        shared.set(None)


def turn_of(trace_id: str, *, alone: bool = False) -> Turn:
    """The turn of a trace, made when new; it becomes the context's most recent one. A trace that is nothing but one
    operation (`alone`) belongs to the context: to its shared turn, if there is one. So does the trace of another
    instrumentation that makes no span current: a model call of the same run is not in it."""
    turn = kept.of_traces.get(trace_id)
    if turn is None and (alone or (shared.get() is not None and trace_here() != trace_id)):
        turn = shared.get() or _next_turn(trace_id)
        _outside.set(turn)
    elif turn is None:
        with kept.lock:
            turn = kept.of_traces.setdefault(trace_id, Turn(trace_id=trace_id))
            turn.of_trace = True
    _recent.set(turn)
    return turn


def _next_turn(trace_id: str = "") -> Turn:
    """The turn after what this context has done lately outside any trace; the same for one trace."""
    outside = _outside.get()
    if outside is None:
        return Turn(trace_id=trace_id)
    if trace_id and outside.trace_id == trace_id:
        return outside
    return Turn(outside.newest_retrievals(), trace_id)


def recall(trace_id: str) -> Turn | None:
    """The turn a model call belongs to: its trace's, or outside any span (`trace_id` '') the context's most recent.

    A search outside any span belongs to the context, too, when a span (another instrumentation's, say) begins after it.
    """
    return (kept.of_traces.get(trace_id) or _outside.get()) if trace_id else _recent.get()


def turn_within(trace_id: str) -> Turn | None:
    """The turn of this very trace or, outside any (''), the most recent one of this context that no trace is."""
    return kept.of_traces.get(trace_id) if trace_id else shared.get() or _outside.get()


def trace_here() -> str:
    """Id of the trace of the current span, '' outside any span."""
    here = trace.get_current_span().get_span_context()
    return f"{here.trace_id:032x}" if here.is_valid else ""


def turn_here() -> Turn | None:
    """What the current turn has retrieved and answered so far; to be asked before an operation starts."""
    return recall(trace_here())


def forget() -> None:
    """Drop every turn."""
    kept.forget()
    lately.forget()
    for known in (_recent, _outside, shared):
        known.set(None)
    for here in (place, searched_here, answered_here):
        here.set(())


def answers_in(trace_id: str) -> list[Answer]:
    """The answers of a trace that this process gave and remembers, newest first; also of one that is nothing but its
    answer, and so belongs to the turn of a context."""
    if turn := kept.of_traces.get(trace_id):
        return turn.newest_answers()
    with kept.lock:
        return [one for turn in kept.living() for one in turn.newest_answers() if one.origin.startswith(trace_id)]
