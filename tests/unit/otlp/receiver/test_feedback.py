"""Feedback that comes as JSON."""

from __future__ import annotations

import json

import pytest

from memtrace_otel.otlp import decode_request
from memtrace_otel.otlp.receiver import RequestError, TooLargeError
from memtrace_otel.otlp.receiver.feedback import read_feedback

TRACE = "4bf92f3577b34da6a3ce929d0e0e4736"


def test_fields_are_those_of_the_command_and_null_is_none() -> None:
    (span,) = decode_request(read_feedback(json.dumps({"trace_id": TRACE.upper(), "score": 0, "label": None}).encode()))
    assert (span.trace_id, span.kind) == (TRACE, "judge")


def test_text_that_is_no_unicode_is_taken() -> None:
    (span,) = decode_request(
        read_feedback(b'{"trace_id": "%s", "label": "fail", "expected": "\\ud800"}' % TRACE.encode())
    )
    assert span.inputs[0].content == "?"


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
def test_what_is_no_feedback_is_refused(body: bytes, reason: str) -> None:
    with pytest.raises(RequestError, match=reason):
        read_feedback(body)


def test_a_body_past_the_limit_is_not_read() -> None:
    with pytest.raises(TooLargeError, match="larger than"):
        read_feedback(b" " * 262_145)
