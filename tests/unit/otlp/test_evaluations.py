"""Evaluations in log records become judge spans."""

from __future__ import annotations

import time

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.logs.v1.logs_pb2 import LogRecord

from memtrace_otel import semconv
from memtrace_otel.otlp import decode_request
from memtrace_otel.otlp.receiver import Checked, Limits, RequestError, TooLargeError, check_logs

LIMITS = Limits(request_bytes=1 << 20)
TRACE, SPAN = bytes(range(16)), bytes(range(8))


def evaluation() -> LogRecord:
    record = LogRecord(event_name=semconv.EVALUATION_EVENT, trace_id=TRACE, span_id=SPAN, observed_time_unix_nano=7)
    record.attributes.add(key=semconv.EVALUATION_LABEL).value.string_value = "fail"
    return record


def request(*records: LogRecord) -> bytes:
    logs = ExportLogsServiceRequest()
    group = logs.resource_logs.add()
    group.resource.attributes.add(key="service.name").value.string_value = "shop"
    group.scope_logs.add(log_records=records)
    return logs.SerializeToString()


def test_an_evaluation_becomes_a_judge_span_of_its_answer() -> None:
    checked = check_logs(request(evaluation()), LIMITS)
    (span,) = decode_request(checked.body)
    assert (span.trace_id, span.parent_id, span.kind, span.service) == (TRACE.hex(), SPAN.hex(), "judge", "shop")
    assert (span.start, span.end) == (7, 7)
    assert span.attributes[semconv.EVALUATION_LABEL] == "fail"
    (answer,) = span.inputs
    assert (answer.role, answer.origin) == ("answer", f"{TRACE.hex()}-{SPAN.hex()}")


def test_an_evaluation_without_a_time_gets_the_present_time() -> None:
    timeless = evaluation()
    timeless.ClearField("observed_time_unix_nano")
    before = time.time_ns()
    (span,) = decode_request(check_logs(request(timeless), LIMITS).body)
    assert before <= span.start == span.end <= time.time_ns()


def test_an_event_name_may_be_an_attribute() -> None:
    older = evaluation()
    older.ClearField("event_name")
    older.attributes.add(key="event.name").value.string_value = semconv.EVALUATION_EVENT
    assert check_logs(request(older), LIMITS).spans == 1
    older.event_name = "other"
    assert check_logs(request(older), LIMITS).spans == 0


def test_the_same_record_gives_the_same_span() -> None:
    twice = decode_request(check_logs(request(evaluation(), evaluation()), LIMITS).body)
    other = evaluation()
    other.attributes[0].value.string_value = "pass"
    assert twice[0] == twice[1]
    assert decode_request(check_logs(request(other), LIMITS).body)[0].span_id != twice[0].span_id


def test_other_log_records_are_rejected_and_counted() -> None:
    outside = evaluation()
    outside.ClearField("span_id")
    checked = check_logs(request(LogRecord(event_name="other"), outside, evaluation()), LIMITS)
    assert (checked.spans, checked.rejected) == (1, 2)
    assert semconv.EVALUATION_EVENT in checked.reason


def test_an_evaluation_past_a_limit_is_rejected_with_the_limit() -> None:
    large, full = evaluation(), evaluation()
    large.body.string_value = "x" * LIMITS.span_bytes
    for _ in range(LIMITS.entries):
        full.attributes.add(key="more")
    for bad, reason in ((large, f"at most {LIMITS.span_bytes}"), (full, f"{LIMITS.entries + 1} attributes")):
        checked = check_logs(request(LogRecord(event_name="other"), bad, evaluation()), Limits(request_bytes=1 << 22))
        assert (checked.spans, checked.rejected) == (1, 2)
        assert reason in checked.reason


@pytest.mark.parametrize("name", [semconv.ATTRIBUTION_EVALUATION, semconv.REVIEW_EVALUATION])
def test_a_verdict_or_review_is_acknowledged_and_not_kept(name: str) -> None:
    verdict = evaluation()
    verdict.attributes.add(key=semconv.EVALUATION_NAME).value.string_value = name
    checked = check_logs(request(verdict, evaluation()), LIMITS)
    assert (checked.spans, checked.rejected, checked.reason) == (1, 0, "")
    assert len(decode_request(checked.body)) == 1
    assert check_logs(request(verdict), LIMITS) == Checked(b"", 0)


def test_a_malformed_logs_request_is_refused() -> None:
    with pytest.raises(RequestError, match="logs request"):
        check_logs(b"nonsense", LIMITS)
    with pytest.raises(TooLargeError, match="more than 1 "):
        check_logs(request(evaluation(), evaluation()), Limits(request_bytes=1 << 20, spans=1))
    assert check_logs(b"", LIMITS).spans == 0
