"""`feedback(...)`: says from inside the application that an answer was right or wrong, and writes the judge span."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from opentelemetry import trace

from memtrace_otel import semconv, settings
from memtrace_otel.capture.config import read_config, redaction
from memtrace_otel.capture.content import describe, variable_ref
from memtrace_otel.capture.guard import guarded, note_misuse
from memtrace_otel.capture.operations import Operation
from memtrace_otel.capture.tracing import active_tracer, context_of
from memtrace_otel.capture.turn import Answer, reply_in, trace_here, turn_here
from memtrace_otel.model import evaluation_problem, is_origin, is_trace_id, make_ref, split_origin
from memtrace_otel.otlp.feedback import TEXT_BYTES, Text
from memtrace_otel.semconv import Incomplete, OpKind, RefKind, Role

_NO_ANSWER = (
    "no recorded answer matches; call feedback after the answering operation has ended, or pass the trace id of the"
    " answer or its origin `<trace id>-<span id>`; the command `memtrace-otel feedback TRACE_ID` takes any trace"
)


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
    """Record an evaluation of an answer and return whether it was recorded. Never raises.

    `answer` is the origin (`<trace id>-<span id>`) of the answering span, or the id of its trace if this process gave
    the answer and remembers it. Without `answer`, the newest reply to the user in the current trace or execution
    context counts; a later request has to name the answer. `label` is a label of the conventions (`fail`, `pass`...),
    `score` a number that fails below MEMTRACE_EVALUATION_THRESHOLD, `expected` the right answer if it is known. While
    contents are off, only the digest of `expected` is recorded, and no `explanation`.

    An evaluation without an answer or without a label and score is counted, and the first one is logged.
    """
    if problem := evaluation_problem(label, score):
        note_misuse("feedback", f"feedback(...) is not recorded: {problem}")
        return False
    given = _answer(answer)
    if given is None:
        if active_tracer(tracer):  # else nothing is recorded here at all
            note_misuse("feedback_answer", f"feedback(...) is not recorded: {_NO_ANSWER}")
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
    return trace_here() == split_origin(origin)[0]


def _answer(named: str) -> Answer | None:
    if is_origin(named):
        return Answer(make_ref(RefKind.ANSWER, split_origin(named)[1]), named, "")
    if named:
        return reply_in(named) if is_trace_id(named) else None
    turn = turn_here()
    return turn.reply() if turn else None


def write_evaluation(operation: Operation, name: str, label: str, score: float | None, explanation: str) -> None:
    """Put the evaluation attributes of the GenAI conventions on a judge span."""
    operation.set(semconv.EVALUATION_NAME, name)
    if label:
        operation.set(semconv.EVALUATION_LABEL, label)
    if score is not None:
        operation.set(semconv.EVALUATION_SCORE, float(score))
    if explanation and operation.captures_content:
        operation.set(semconv.EVALUATION_EXPLANATION, explanation)


def feedback_redaction(*, content_off: bool = False) -> Callable[[str], Text]:
    """Return the function that decides how much is kept of a text which a person gives on the command line or to
    `serve`: redacted like every content; only its digest if contents are switched off here, or (`content_off`) were
    off in the program that recorded the trace. The default of the setting does not count here."""
    off = content_off or (settings.CAPTURE_CONTENT.find().source != "default" and not settings.captures_content())
    limits = replace(read_config(), content=not off, preview_bytes=TEXT_BYTES, redaction=redaction())

    def described(text: str) -> Text:
        found = describe(text, limits, inline=True)
        reasons = (*found.reasons, Incomplete.CONTENT_OFF) if off and text else found.reasons
        return Text(found.digest, found.shown, "", tuple(map(str, reasons)))

    return described
