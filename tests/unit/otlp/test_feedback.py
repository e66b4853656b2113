"""Feedback as the judge span it stands for."""

from __future__ import annotations

from typing import Any

import pytest

from memtrace_otel import semconv
from memtrace_otel.capture import feedback, operation
from memtrace_otel.model import OperationSpan
from memtrace_otel.otlp import decode_request
from memtrace_otel.otlp.feedback import FeedbackError, encode_feedback
from memtrace_otel.otlp.sdk import encode_sdk_spans
from tests.conftest import Recording

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def span(**given: Any) -> OperationSpan:
    (span,) = decode_request(encode_feedback(TRACE, **given))
    return span


def test_it_is_the_span_that_the_program_would_have_written(recording: Recording, content_on: None) -> None:
    with operation("chat", kind="respond", system="t", tracer=recording.tracer) as chat:
        chat.wrote("answer:a", role="answer", content="Monday")
    said = {"score": 0.2, "expected": "Tuesday", "explanation": "a day off"}
    assert feedback("fail", answer=chat.origin, tracer=recording.tracer, **said)  # type: ignore[arg-type]
    inside = next(s for s in decode_request(encode_sdk_spans(recording.spans())) if s.kind == "judge")
    outside = span(label="fail", **said)
    assert (outside.name, outside.kind, outside.system) == (inside.name, inside.kind, inside.system)
    evaluated = {k: v for k, v in inside.attributes.items() if k.startswith(semconv.EVALUATION_PREFIX)}
    assert outside.attributes == evaluated
    wanted = [(v.role, v.content) for v in inside.inputs if v.role == "expected"]
    assert [(v.role, v.content) for v in outside.inputs] == wanted == [("expected", "Tuesday")]


def test_equal_feedback_is_one_span_and_other_feedback_another() -> None:
    one = span(label="fail", score=1)
    assert span(label="fail", score=1.0).span_id == one.span_id
    others = [span(label="pass", score=1), span(label="fail"), span(label="fail", score=1, expected="x")]
    others.append(span(label="fail", score=1, time="2026-03-06T10:04:31Z"))
    assert len({other.span_id for other in [one, *others]}) == 5


def test_a_time_is_utc_without_a_zone() -> None:
    times = ("2026-03-06T10:04:31.000001", "2026-03-06T11:04:31.000001+01:00")
    assert {span(label="fail", time=time).start for time in times} == {1_772_791_471_000_001_000}


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({"trace_id": "xyz", "label": "fail"}, "32 hex digits"),
        ({"trace_id": "0" * 32, "label": "fail"}, "not all of them 0"),
        ({"trace_id": TRACE + "\n", "label": "fail"}, "32 hex digits"),
        ({}, "a label or a score"),
        ({"label": "meh"}, "must be one of .*fail.*pass"),
        ({"score": float("nan")}, "finite"),
        ({"score": 10**400}, "finite"),
        ({"label": "fail", "expected": "\u00e4" * 8_193}, "expected answer is longer than 16384 bytes"),
        ({"label": "fail", "explanation": "x" * 16_385}, "explanation is longer"),
        ({"label": "fail", "name": "x" * 257}, "name is longer"),
        ({"label": "fail", "name": ""}, "name must not be empty"),
        ({"label": "fail", "name": semconv.ATTRIBUTION_EVALUATION}, "our own verdicts"),
        ({"label": "fail", "time": "yesterday"}, "RFC 3339"),
        ({"label": "fail", "time": "1969-12-31"}, "after 1970"),
        ({"label": "fail", "time": "9999-12-31T23:59:59-23:59"}, "not in the future"),
    ],
)
def test_what_cannot_be_taken_is_refused_by_name(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(FeedbackError, match=reason):
        encode_feedback(**{"trace_id": TRACE, **given})
