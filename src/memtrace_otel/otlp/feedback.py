"""Feedback from outside the observed program, as a judge span.

`memtrace_otel.feedback` writes the same span inside the program, with the judged answer. Here the answer may be unknown
until later; the graph fills it in.
"""

from __future__ import annotations

import hashlib
import json
import time as clock
from collections.abc import Callable
from typing import NamedTuple

from memtrace_otel import semconv
from memtrace_otel.model import (
    AttributeValue,
    OperationSpan,
    Variable,
    content_digest,
    evaluation_problem,
    is_trace_id,
    make_ref,
    parse_time,
)
from memtrace_otel.otlp.encode import encode_request

TEXT_BYTES = 16_384
"""Longest expected answer, and longest explanation."""
NAME_BYTES = 256
_AHEAD_NANOSECONDS = 24 * 3600 * 10**9
"""How far the clock of the sender may be ahead."""


class FeedbackError(ValueError):
    """Feedback that is refused. The message gives the reason and never quotes a content."""


class Text(NamedTuple):
    """The part of a text that may be kept: digest, shown text, address of the whole text, reasons for less text."""

    digest: str = ""
    shown: str = ""
    store: str = ""
    reasons: tuple[str, ...] = ()


def as_given(text: str) -> Text:
    """Keep the whole text."""
    return Text(shown=text)


def encode_feedback(
    trace_id: str,
    *,
    label: str = "",
    score: float | None = None,
    expected: str = "",
    explanation: str = "",
    name: str = semconv.USER_FEEDBACK,
    time: str = "",
    described: Callable[[str], Text] = as_given,
) -> bytes:
    """Return an ExportTraceServiceRequest with a judge span on the newest answer of the trace before `time`.

    A `label` of the conventions or a `score` is needed; a score below MEMTRACE_EVALUATION_THRESHOLD is a failure.
    `time` is RFC 3339, in UTC when it has no zone; the default is now. Of two judgements at the same time the later
    call counts, which has the greater span id. `described` says what of the texts may be kept. Raises FeedbackError.
    """
    trace_id = trace_id.lower()
    _check(trace_id, label, score, expected, explanation, name)
    score = None if score is None else float(score)
    given = clock.time_ns()
    moment = _nanoseconds(time) if time else given
    said = json.dumps([trace_id, name, label, score, expected, explanation, time, given])
    span_id = f"{given // 1000:013x}{hashlib.sha256(said.encode()).hexdigest()[:3]}"
    attributes: dict[str, AttributeValue] = {semconv.EVALUATION_NAME: name}
    if label:
        attributes[semconv.EVALUATION_LABEL] = label
    if score is not None:
        attributes[semconv.EVALUATION_SCORE] = score
    wanted, why = described(expected), described(explanation)
    if why.shown:
        attributes[semconv.EVALUATION_EXPLANATION] = why.shown
    ref = make_ref(semconv.RefKind.EXPECTED, wanted.digest or content_digest(expected))
    answer = Variable(ref, semconv.Role.EXPECTED, digest=wanted.digest, content=wanted.shown, store=wanted.store)
    judge = OperationSpan(
        trace_id,
        span_id,
        name=semconv.SPAN_NAME_PREFIX + semconv.OpKind.JUDGE,
        kind=semconv.OpKind.JUDGE,
        system=semconv.FEEDBACK_SYSTEM,
        start=moment,
        end=moment,
        inputs=(answer,) if expected else (),
        incomplete=tuple(dict.fromkeys((*wanted.reasons, *why.reasons))),
        attributes=attributes,
    )
    return encode_request([judge])


def _check(trace_id: str, label: str, score: float | None, expected: str, explanation: str, name: str) -> None:
    if not is_trace_id(trace_id):
        raise FeedbackError("the trace id must be 32 hex digits, not all of them 0")
    if problem := evaluation_problem(label, score):
        raise FeedbackError(problem)
    for what, text, most in (
        ("expected answer", expected, TEXT_BYTES),
        ("explanation", explanation, TEXT_BYTES),
        ("name", name, NAME_BYTES),
    ):
        if len(text.encode("utf-8", "replace")) > most:
            raise FeedbackError(f"the {what} is longer than {most} bytes")
    if not name or name == semconv.ATTRIBUTION_EVALUATION:
        raise FeedbackError("the name must not be empty, nor that of our own verdicts")


def _nanoseconds(time: str) -> int:
    try:
        nanoseconds = parse_time(time)
    except ValueError:
        raise FeedbackError("the time must be RFC 3339, such as 2026-03-06T10:04:31Z") from None
    if not 0 < nanoseconds <= clock.time_ns() + _AHEAD_NANOSECONDS:
        raise FeedbackError("the time must be after 1970 and not in the future")
    return nanoseconds
