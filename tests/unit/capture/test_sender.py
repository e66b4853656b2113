"""Replies of an OTLP/HTTP endpoint that are no success: the spans stay."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import ClassVar

import pytest
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.trace import TracerProvider

from memtrace_otel.capture.delivery import LosslessSpanProcessor


class Endpoint(BaseHTTPRequestHandler):
    """Answers every request with `reply`: status, content type, body."""

    reply: ClassVar[tuple[int, str, bytes]]
    requests: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        status, content_type, body = self.reply
        self.requests.append(self.command)
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(status)
        if status in (302, 307):
            self.send_header("location", "/login")
        self.send_header("content-type", content_type)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self) -> None:
        self.reply, reply = (200, "text/html", b"<html>log in</html>"), self.reply
        self.headers["content-length"] = "0"
        self.do_POST()
        self.reply = reply

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), Endpoint)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    Endpoint.requests.clear()
    yield f"http://127.0.0.1:{server.server_port}/v1/traces"
    server.shutdown()
    server.server_close()


HTML = (200, "text/html; charset=utf-8", b"<!doctype html><title>Log in</title>")


@pytest.mark.parametrize("reply", [(302, "text/plain", b""), (307, "text/plain", b""), HTML, (200, "", b" <html>")])
def test_spans_stay_when_the_endpoint_redirects_or_answers_a_web_page(
    endpoint: str, tmp_path: Path, reply: tuple[int, str, bytes]
) -> None:
    Endpoint.reply = reply
    processor = LosslessSpanProcessor(OTLPSpanExporter(endpoint), spool_dir=tmp_path, delay_seconds=0.01)
    provider = TracerProvider(shutdown_on_exit=False)
    provider.add_span_processor(processor)
    provider.get_tracer("tests").start_span("kept").end()
    assert not processor.force_flush(5000)
    assert processor.spooled_bytes > 0
    Endpoint.reply = (200, "application/x-protobuf", b"")
    assert processor.force_flush(5000)
    assert processor.spooled_bytes == 0
    assert set(Endpoint.requests) == {"POST"}
    provider.shutdown()
