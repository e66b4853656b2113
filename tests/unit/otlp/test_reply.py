"""Which HTTP replies say that an OTLP receiver took the data."""

from __future__ import annotations

import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceResponse
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceResponse

from memtrace_otel.otlp.reply import ReplyError, read_rejected, refusal


@pytest.mark.parametrize("status", [200, 202, 204])
def test_an_empty_reply_is_a_success(status: int) -> None:
    assert refusal(status) == ""
    assert read_rejected("traces", b"") == (0, "")


@pytest.mark.parametrize(
    ("status", "content_type", "body", "reason"),
    [
        (302, "", b"", "HTTP 302 Found: the endpoint redirects"),
        (307, "", b"", "HTTP 307 Temporary Redirect: the endpoint redirects"),
        (503, "", b"", "HTTP 503 Service Unavailable"),
        (200, "text/html; charset=utf-8", b"Sign in", "the reply is not an OTLP reply, but a web page"),
        (200, "", b"\n<!doctype html>", "the reply is not an OTLP reply, but a web page"),
    ],
)
def test_a_redirect_and_a_web_page_are_failures(status: int, content_type: str, body: bytes, reason: str) -> None:
    assert refusal(status, content_type, body).startswith(reason)


def test_rejected_items_are_read_from_protobuf_and_from_json() -> None:
    spans, records = ExportTraceServiceResponse(), ExportLogsServiceResponse()
    spans.partial_success.rejected_spans, spans.partial_success.error_message = 2, "too old"
    records.partial_success.rejected_log_records = 3
    assert read_rejected("traces", spans.SerializeToString()) == (2, "too old")
    assert read_rejected("logs", records.SerializeToString()) == (3, "")
    assert read_rejected("traces", b'{"partialSuccess": {"rejectedSpans": "2", "errorMessage": "x"}}') == (2, "x")
    assert read_rejected("traces", b'{"partialSuccess": {}}') == (0, "")


@pytest.mark.parametrize("body", [b"\xff", b"[]", b'"ok"', b'{"error": "down"}', b"[" * 100_000])
def test_other_bodies_are_no_otlp_replies(body: bytes) -> None:
    with pytest.raises(ReplyError, match="not an OTLP reply"):
        read_rejected("traces", body)
