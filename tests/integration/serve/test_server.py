"""A running server: answers, refusals and limits, who may send and read, health, reports, and its end."""

from __future__ import annotations

import gzip
import json
import random
import re
import signal
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import grpc
import pytest
from google.rpc.error_details_pb2 import RetryInfo
from google.rpc.status_pb2 import Status
from opentelemetry.exporter.otlp.proto.grpc.trace_exporter import OTLPSpanExporter as GrpcExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter as HttpExporter
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span
from opentelemetry.sdk.trace.export import SpanExportResult

from memtrace_otel.otlp import encode_request
from memtrace_otel.serve.server import GRACE_SECONDS
from memtrace_otel.sources import SqliteStore
from memtrace_otel.testing import contract_span
from tests.integration.serve.conftest import Server, Start
from tests.integration.serve.test_exporters import spans
from tests.otlp_json import request_to_json
from tests.unit.otlp.spans import nested_arrays, record
from tests.unit.report.stories import Story, overwritten

METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
BODY = encode_request([contract_span(1, 1), contract_span(1, 2)])
MOST = (4 << 20) + (1 << 16)
NONE, GZIP, DEFLATE = grpc.Compression.NoCompression, grpc.Compression.Gzip, grpc.Compression.Deflate
JSON = {"content_type": "application/json"}
PACKED = {"content_encoding": "gzip"}


def call(server: Server, body: bytes, compression: grpc.Compression = NONE) -> bytes:
    with grpc.insecure_channel(server.grpc, compression=compression) as channel:
        return channel.unary_unary(METHOD)(body, timeout=10)


def refusals(server: Server) -> dict[str, int]:
    """Return how many requests were refused as a whole, by reason."""
    found = re.findall(r'refused_requests_total\{reason="(\w+)"\} (\d+)', server.get("/metrics"))
    return {reason: int(count) for reason, count in found if int(count)}


def test_json_is_answered_in_json_and_empty_requests_are_taken(start: Start) -> None:
    server = start()
    status, reply, headers = server.post("/v1/traces", json.dumps(request_to_json(BODY)).encode(), **JSON)
    assert (status, json.loads(reply), headers["content-type"]) == (200, {}, "application/json")
    assert len(server.span_ids()) == 2
    for name in ("traces", "logs"):
        assert server.post(f"/v1/{name}", b"{}", **JSON)[:2] == (200, b"{}")
        assert server.post(f"/v1/{name}", b"")[:2] == (200, b"")
    assert (server.metric("acknowledged_requests"), refusals(server)) == (5, {})


def test_a_malformed_request_is_refused_with_a_reason_and_counted(start: Start) -> None:
    server = start(MEMTRACE_MAX_REQUEST_BYTES=str(MOST))
    large = gzip.compress(bytes(1 << 20) * 4 + random.randbytes(1 << 17))
    deep = record(0x0A, record(0x12, record(0x12, record(0x4A, record(0x12, nested_arrays(60))))))
    for body, headers, status, reason in (
        (b"nonsense", {}, 400, "not an OTLP trace request"),
        (deep, {}, 400, "nested too deeply"),
        (b"{", JSON, 400, "not JSON"),
        (b"[" * 100_000, JSON, 400, "nested too deeply"),
        (b'{"resourceSpans": [{"scopeSpans": [{"spans": [{}, {"name": 5}]}]}]}', JSON, 400, "cannot read"),
        (BODY, {"content_type": "text/plain"}, 415, "content type"),
        (BODY, {"content_encoding": "br"}, 400, "gzip"),
        (b"\x1f\x8bnonsense", PACKED, 400, "gzip"),
        (gzip.compress(BODY)[:-9], PACKED, 400, "cut off"),
        (gzip.compress(bytes(8 << 20)), PACKED, 413, "times its size"),
        (large, PACKED, 413, "larger than"),
        (bytes(5 << 20), {}, 413, "larger than"),
        (b'{"resourceSpans": [' + b" " * (2 << 20) + b"]}", JSON, 413, "JSON larger"),
        (b'{"resourceSpans": [%s{}]}' % (b"{}," * 300_000), JSON, 413, "JSON objects"),
        (record(0x0A, b"") * 20_001, {}, 413, "more than 20000 spans"),
        (BODY, {"origin": "http://localhost"}, 403, "web page"),
    ):
        before = refusals(server)
        found, reply, _ = server.post("/v1/traces", body, **headers)
        text = json.loads(reply)["message"] if headers == JSON else reply.decode()
        assert (found, reason in text) == (status, True), text
        cause = {413: "too_large", 403: "unauthorized"}.get(status, "unreadable")
        assert refusals(server) == {**before, cause: before.get(cause, 0) + 1}
    assert server.post("/v1/traces", BODY)[0] == 200
    assert len(server.span_ids()) == 2


def test_grpc_refuses_the_same(start: Start) -> None:
    server = start(MEMTRACE_MAX_REQUEST_BYTES=str(MOST))
    invalid, exhausted = grpc.StatusCode.INVALID_ARGUMENT, grpc.StatusCode.RESOURCE_EXHAUSTED
    for body, compression, code, cause in (
        (b"nonsense", NONE, invalid, "unreadable"),
        (b"\x1f\x8bnonsense", NONE, invalid, "unreadable"),
        (bytes(5 << 20), NONE, exhausted, "too_large"),
        (bytes(8 << 20), GZIP, invalid, "too_large"),
        (bytes(8 << 20), DEFLATE, invalid, "too_large"),
        (random.randbytes(5 << 20), GZIP, exhausted, "too_large"),
    ):
        before = refusals(server)
        with pytest.raises(grpc.RpcError) as caught:
            call(server, body, compression)
        assert caught.value.code() is code  # type: ignore[attr-defined]
        assert refusals(server) == {**before, cause: before.get(cause, 0) + 1}
    assert [call(server, BODY, compression) for compression in (NONE, GZIP, DEFLATE)] == [b"", b"", b""]
    assert len(server.span_ids()) == 2


def span(number: int, **fields: object) -> Span:
    return Span(trace_id=b"t" * 16, span_id=number.to_bytes(8, "big"), **fields)  # type: ignore[arg-type]


def with_entries(kind: str, count: int) -> Span:
    full = span(1)
    for _ in range(count):
        getattr(full, kind).add()
    return full


def request(*some: Span) -> bytes:
    message = ExportTraceServiceRequest()
    message.resource_spans.add().scope_spans.add().spans.extend(some)
    return message.SerializeToString()


def test_spans_past_a_limit_or_with_wrong_ids_are_refused_alone(start: Start) -> None:
    server = start()
    for rejected, (bad, reason) in enumerate(
        (
            (with_entries("attributes", 2_049), "at most 2048"),
            (with_entries("events", 2_049), "at most 2048"),
            (with_entries("links", 2_049), "at most 2048"),
            (span(1, events=[Span.Event(attributes=with_entries("attributes", 2_049).attributes)]), "2049 attributes"),
            (span(1, name="x" * (1 << 20)), "at most 1048576"),
            (Span(trace_id=b"t" * 16, span_id=bytes(8)), "all-zero span id"),
            (Span(trace_id=b"short", span_id=b"12345678"), "trace id of 5 bytes instead of 16"),
        )
    ):
        body = request(span(7), bad, span(8))
        for reply in (server.post("/v1/traces", body)[1], call(server, body)):
            part = ExportTraceServiceResponse.FromString(reply).partial_success
            assert part.rejected_spans == 1
            assert reason in part.error_message
        assert server.metric("rejected_spans") == 2 * rejected + 2
    assert server.span_ids() == {f"{number:016x}" for number in (7, 8)}


def test_a_request_at_the_limits_is_kept(start: Start) -> None:
    server = start()
    assert call(server, request(with_entries("attributes", 2_048), *map(span, range(2, 19_001)))) == b""
    attribute = record(0x0A, b"deep") + record(0x12, nested_arrays(46))
    deep = Span.FromString(Span(trace_id=b"d" * 16, span_id=b"d" * 8).SerializeToString() + record(0x4A, attribute))
    assert server.post("/v1/traces", request(deep))[0] == 200
    server.until(lambda: server.metric("inbox_bytes") == 0, 60)
    assert (server.metric("quarantined_requests"), server.metric("decoded_spans")) == (0, 19_001)
    assert server.terminate() == 0
    with SqliteStore.open(server.database) as store:
        (kept,) = store.trace((b"d" * 16).hex())
    assert kept.attributes["deep"] == "[" * 46 + '"x"' + "]" * 46


def test_while_too_many_bytes_wait_senders_are_told_when_to_try_again(start: Start) -> None:
    server = start(MEMTRACE_INBOX_BYTES="1")
    status, reply, headers = server.post("/v1/traces", BODY)
    while status == 200:
        status, reply, headers = server.post("/v1/traces", BODY)
    assert (status, headers["retry-after"]) == (429, "5")
    assert Status.FromString(reply).code == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
    with pytest.raises(grpc.RpcError) as caught:
        [call(server, BODY) for _ in range(1000)]
    error = caught.value
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED  # type: ignore[attr-defined]
    trailers = dict(error.trailing_metadata())  # type: ignore[attr-defined]
    assert RetryInfo.FromString(trailers["google.rpc.retryinfo-bin"]).retry_delay.seconds == 5
    (detail,) = Status.FromString(trailers["grpc-status-details-bin"]).details
    assert detail.Is(RetryInfo.DESCRIPTOR)
    sender = HttpExporter(endpoint=f"{server.http}/v1/traces", timeout=30)
    assert [sender.export(spans(5)) for _ in range(3)] == [SpanExportResult.SUCCESS] * 3


def test_with_a_token_only_its_bearer_may_send(start: Start) -> None:
    server = start("--host", "0.0.0.0", MEMTRACE_SERVE_TOKEN="secret", warnings=2)
    status, _, headers = server.post("/v1/traces", BODY)
    assert (status, headers["www-authenticate"]) == (401, "Bearer")
    assert server.post("/v1/traces", BODY, authorization="Bearer wrong")[0] == 401
    assert server.post("/v1/traces", BODY, authorization="Bearer secret")[0] == 200
    with pytest.raises(grpc.RpcError) as caught:
        call(server, BODY)
    assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED  # type: ignore[attr-defined]
    sender = GrpcExporter(endpoint=server.grpc, insecure=True, headers={"authorization": "Bearer secret"})
    assert sender.export(spans(1)) is SpanExportResult.SUCCESS
    assert json.loads(server.get("/health"))["status"] == "ok"
    path = f"/report/{'0' * 31}a"
    assert asked(server, path)[0] == 401
    assert asked(server, "/metrics", host="any", authorization="Bearer secret")[0] == 200


@pytest.mark.parametrize("replaced", [False, True])
def test_nothing_is_acknowledged_when_the_file_was_moved(start: Start, replaced: bool) -> None:
    server = start()
    assert server.post("/v1/traces", BODY)[0] == 200
    server.database.rename(server.database.with_name("rotated.db"))
    if replaced:
        server.database.write_bytes(b"")
    assert server.post("/v1/traces", BODY)[0] == 503
    with pytest.raises(HTTPError) as caught:
        server.get("/health")
    assert (caught.value.code, json.load(caught.value)) == (503, {"status": "moved"})
    server.terminate()
    assert "moved, removed or replaced while it is open" in server.errors()


def asked(server: Server, path: str, **headers: str) -> tuple[int, str, dict[str, str]]:
    try:
        with urlopen(Request(f"{server.http}{path}", headers=headers), timeout=120) as reply:
            return reply.status, reply.read().decode(), dict(reply.headers)
    except HTTPError as error:
        return error.code, error.read().decode(), dict(error.headers)


def test_the_report_on_a_failing_trace(start: Start) -> None:
    story = Story()
    overwritten(story)
    server = start()
    assert server.post("/v1/traces", encode_request(story.spans))[0] == 200
    trace_id = next(span.trace_id for span in story.spans if span.kind == "judge")
    status, page, headers = asked(server, f"/report/{trace_id}")
    assert (status, headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert page.count('<article class="card') == 1
    assert headers["cache-control"] == "no-store"
    assert "frame-ancestors 'none'" in headers["content-security-policy"]


def test_a_report_that_cannot_be_made_says_why(start: Start) -> None:
    server, unknown = start(), f"/report/{'0' * 31}a"
    assert [(status, "no trace" in page) for status, page, _ in [asked(server, unknown)]] == [(404, True)]
    assert [(status, "32 hex" in page) for status, page, _ in [asked(server, "/report/x")]] == [(404, True)]
    assert asked(server, "/report/..%2f")[0] == 404
    for headers in ({"host": "evil.test"}, {"host": "[abc"}, {"origin": "http://evil.test"}):
        assert asked(server, unknown, **headers)[0] == 403
    assert asked(server, "/metrics", host="localhost:4318")[0] == 200
    status, _, headers = asked(server, "/metrics", host="evil.test")
    assert (status, headers["content-security-policy"]) == (403, "frame-ancestors 'none'")
    server.database.rename(server.database.with_name("elsewhere.db"))
    status, page, _ = asked(server, unknown)
    assert (status, "could not be made" in page) == (500, True)
    server.terminate()
    assert "spans.db" in server.errors()


def refused_start(tmp_path: Path, *options: str) -> str:
    command = [sys.executable, "-m", "memtrace_otel.cli", "serve", "--db", str(tmp_path / "a.db"), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    return done.stderr


def test_a_server_that_cannot_run_says_what_to_change(tmp_path: Path) -> None:
    assert "MEMTRACE_SERVE_TOKEN" in refused_start(tmp_path, "--host", "0.0.0.0")
    assert "does not exist" in refused_start(tmp_path, "--db", str(tmp_path / "mistyped" / "a.db"))
    assert "--tls-key" in refused_start(tmp_path, "--tls-cert", __file__)
    assert list(tmp_path.iterdir()) == []
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        for option, other in (("--grpc-port", "--http-port"), ("--http-port", "--grpc-port")):
            assert f"127.0.0.1:{port}" in refused_start(tmp_path, option, port, other, "0")


@pytest.fixture(scope="module")
def certified(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A certificate for `localhost`, and its key."""
    folder = tmp_path_factory.mktemp("tls")
    certificate, key = folder / "cert.pem", folder / "key.pem"
    make = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    subprocess.run([*make.split(), "-out", certificate, "-keyout", key], check=True, capture_output=True)
    return certificate, key


def test_tls(start: Start, certified: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):  # they would win over the exporter's own certificate
        monkeypatch.delenv(name, raising=False)
    certificate, key = certified
    server = start("--tls-cert", str(certificate), "--tls-key", str(key), scheme="https")
    senders = (
        HttpExporter(endpoint=f"{server.http}/v1/traces", certificate_file=str(certificate)),
        GrpcExporter(
            endpoint=server.grpc, credentials=grpc.ssl_channel_credentials(certificate.read_bytes()), insecure=False
        ),
    )
    assert [sender.export(spans(3)) for sender in senders] == [SpanExportResult.SUCCESS] * 2
    assert server.terminate() == 0
    assert len(server.span_ids()) == 6


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_server_ends_in_order(start: Start, number: signal.Signals) -> None:
    server = start()
    for _ in range(5):
        assert server.post("/v1/traces", BODY)[0] == 200
    server.process.send_signal(number)
    assert server.process.wait(20) == 0
    assert server.errors() == ""
    assert len(server.span_ids()) == 2


@pytest.mark.parametrize("sent", ["a request", "no request", "nothing"])
def test_the_end_does_not_wait_for_open_connections(start: Start, certified: tuple[Path, Path], sent: str) -> None:
    certificate, key = certified
    server = start("--tls-cert", str(certificate), "--tls-key", str(key), scheme="https")
    context = ssl.create_default_context(cafile=certificate)
    connection = socket.create_connection(("localhost", int(server.http.rpartition(":")[2])))
    with connection if sent == "nothing" else context.wrap_socket(connection, server_hostname="localhost") as kept:
        if sent == "a request":
            kept.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert b" 200 " in kept.recv(4096)
        began = time.monotonic()
        assert server.terminate() == 0
        assert time.monotonic() - began < GRACE_SECONDS
        assert server.errors() == ""
