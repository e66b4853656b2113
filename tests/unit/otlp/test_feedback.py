"""Feedback as a judge span, from the command line and in JSON."""

from __future__ import annotations

import json
from typing import Any

import pytest

from memtrace_otel import semconv
from memtrace_otel.capture import feedback, operation
from memtrace_otel.capture.feedback import feedback_redaction
from memtrace_otel.capture.guard import drops
from memtrace_otel.model import OperationSpan
from memtrace_otel.otlp import decode_request
from memtrace_otel.otlp.feedback import FeedbackError, encode_feedback
from memtrace_otel.otlp.receiver import RequestError, TooLargeError
from memtrace_otel.otlp.receiver.http import read_feedback
from memtrace_otel.otlp.sdk import encode_sdk_spans
from tests.conftest import Recording

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def span(**given: Any) -> OperationSpan:
    (span,) = decode_request(encode_feedback(TRACE, **given))
    return span


def test_feedback_gives_the_same_span_outside_and_inside_the_program(recording: Recording, content_on: None) -> None:
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


def test_of_two_judgements_at_one_time_the_later_call_has_the_greater_span_id() -> None:
    given = [span(label=label, time="2026-03-06T10:04:31Z") for label in ("fail", "pass", "fail", "fail")]
    assert len({(one.start, one.end) for one in given}) == 1
    assert sorted(one.span_id for one in given) == [one.span_id for one in given]
    assert len({one.span_id for one in given}) == 4


def test_texts_are_redacted_and_left_out_when_contents_are_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MEMTRACE_REDACT_PATTERNS", "email")
    texts = {"expected": "ask ana@example.org", "explanation": "bob@example.org was asked"}
    kept = span(label="fail", **texts, described=feedback_redaction())
    assert kept.inputs[0].content == "ask [redacted: email]"
    assert kept.attributes[semconv.EVALUATION_EXPLANATION] == "[redacted: email] was asked"
    assert kept.incomplete == ("redacted:email",)
    assert "example" not in repr(kept)
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT", "NO_CONTENT")
    off = span(label="fail", **texts, described=feedback_redaction())
    assert (off.inputs[0].content, off.inputs[0].digest != "") == ("", True)
    assert semconv.EVALUATION_EXPLANATION not in off.attributes
    assert off.incomplete == (semconv.Incomplete.CONTENT_OFF,)
    assert "ask" not in repr(off)


@pytest.mark.parametrize("said", [{"label": "meh"}, {"score": float("nan")}, {}, {"label": "", "score": None}])
def test_feedback_without_a_judgement_is_counted_and_not_recorded(
    recording: Recording, said: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    drops.clear()
    with operation("chat", kind="respond", system="t", tracer=recording.tracer) as chat:
        chat.wrote("answer:a", role="answer", content="Monday")
    assert feedback(answer=chat.origin, tracer=recording.tracer, **said) is False
    assert [span.name for span in recording.spans()] == ["chat"]
    assert drops["misuse:feedback"] == 1
    assert "feedback(...) is not recorded" in caplog.text
    assert feedback("Thumbs Down", answer=chat.origin, tracer=recording.tracer)


def test_a_time_without_a_zone_is_utc() -> None:
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
def test_invalid_feedback_is_refused_with_a_reason(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(FeedbackError, match=reason):
        encode_feedback(**{"trace_id": TRACE, **given})


def test_json_feedback_has_the_fields_of_the_command_and_null_means_absent() -> None:
    (read,) = decode_request(read_feedback(json.dumps({"trace_id": TRACE.upper(), "score": 0, "label": None}).encode()))
    assert (read.trace_id, read.kind) == (TRACE, "judge")


def test_json_feedback_with_a_lone_surrogate_is_taken() -> None:
    (read,) = decode_request(
        read_feedback(b'{"trace_id": "%s", "label": "fail", "expected": "\\ud800"}' % TRACE.encode())
    )
    assert read.inputs[0].content == "?"


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "nested"),
        (b"[]", "no JSON object"),
        (b'{"label": "fail"}', "needs a trace_id"),
        (b'{"trace_id": "1", "lable": "fail"}', "no fields but"),
        (b'{"trace_id": "1", "label": true}', "label must be a string"),
        (b'{"trace_id": "1", "score": "0.5"}', "score must be a number"),
        (b'{"trace_id": "1", "score": true}', "score must be a number"),
        (b'{"trace_id": "1", "score": 1}', "32 hex digits"),
        (b'{"trace_id": "%s", "score": 1e999}' % TRACE.encode(), "finite"),
    ],
)
def test_invalid_json_feedback_is_refused(body: bytes, reason: str) -> None:
    with pytest.raises(RequestError, match=reason):
        read_feedback(body)


def test_feedback_past_the_size_limit_is_not_parsed() -> None:
    with pytest.raises(TooLargeError, match="larger than"):
        read_feedback(b" " * 262_145)
