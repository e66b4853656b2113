"""`feedback(...)`: say from inside the application that an answer was right or wrong; it writes the judge span."""

from __future__ import annotations

from opentelemetry import trace

from memtrace_otel import semconv
from memtrace_otel.capture import recall
from memtrace_otel.capture.content import variable_ref
from memtrace_otel.capture.evaluation import write_evaluation
from memtrace_otel.capture.guard import guarded, note_misuse
from memtrace_otel.capture.operations import Operation
from memtrace_otel.capture.tracing import context_of
from memtrace_otel.model import evaluation_problem, make_origin, make_ref, split_origin
from memtrace_otel.semconv import OpKind, RefKind, Role


@guarded("feedback", False)
def feedback(
    label: str = "",
    *,
    score: float | None = None,
    expected: str = "",
    explanation: str = "",
    name: str = semconv.USER_FEEDBACK,
    answer: str = "",
    tracer: trace.Tracer | None = None,
) -> bool:
    """Record an evaluation of an answer; returns whether that was done: False without an answer to attach it to, and
    for what says nothing, which is counted and logged. Never raises.

    `answer` is the origin (`<trace id>-<span id>`) of the answering span; without it, the newest answer of the current
    trace or execution context is meant. `label` is one of the labels of the conventions (`fail`, `incorrect`,
    `pass`...), `score` a number that fails below MEMTRACE_EVALUATION_THRESHOLD, `expected` the right answer when known.
    """
    if problem := evaluation_problem(label, score):
        note_misuse("feedback", f"feedback(...) is not recorded: {problem}")
        return False
    given = _answer(answer)
    if given is None:
        return False
    with Operation(
        semconv.SPAN_NAME_PREFIX + OpKind.JUDGE,
        kind=OpKind.JUDGE,
        system=semconv.FEEDBACK_SYSTEM,
        tracer=tracer,
        parent=None if _in_trace(given.origin) else context_of(given.origin),
    ) as operation:
        operation.read(given.ref, role=Role.ANSWER, origin=given.origin, content=given.text)
        if expected:
            operation.read(variable_ref(RefKind.EXPECTED, expected), role=Role.EXPECTED, content=expected)
        write_evaluation(operation, name, label, score, explanation)
    return True


def _in_trace(origin: str) -> bool:
    return recall.trace_here() == split_origin(origin)[0]


def _answer(origin: str) -> recall.Answer | None:
    if origin:
        return recall.Answer(make_ref(RefKind.ANSWER, split_origin(origin)[1]), make_origin(*split_origin(origin)), "")
    turn = recall.turn_here()
    return next(iter(turn.newest_answers()), None) if turn else None
