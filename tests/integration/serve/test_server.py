"""A running server: what it refuses and how, who may send, health, metrics, its end."""

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
from opentelemetry.sdk.trace.export import SpanExportResult

from memtrace_otel.otlp import encode_request
from memtrace_otel.testing import contract_span
from tests.integration.serve.conftest import Server, Start
from tests.integration.serve.test_exporters import spans
from tests.otlp_json import request_to_json

METHOD = "/opentelemetry.proto.collector.trace.v1.TraceService/Export"
BODY = encode_request([contract_span(1, 1), contract_span(1, 2)])

MOST = (4 << 20) + (1 << 16)
LARGE = gzip.compress(bytes(4 << 20) + random.randbytes(1 << 17))


def call(server: Server, body: bytes, compression: grpc.Compression = grpc.Compression.NoCompression) -> bytes:
    with grpc.insecure_channel(server.grpc, compression=compression) as channel:
        return channel.unary_unary(METHOD)(body, timeout=10)


def refusals(server: Server) -> dict[str, int]:
    """How many requests were refused as a whole, by reason."""
    found = re.findall(r'refused_requests_total\{reason="(\w+)"\} (\d+)', server.get("/metrics"))
    return {reason: int(count) for reason, count in found if int(count)}


def with_a_bad_span(body: bytes) -> bytes:
    request = ExportTraceServiceRequest.FromString(body)
    request.resource_spans[0].scope_spans[0].spans.add(name="bad", trace_id=b"short", span_id=b"12345678")
    return request.SerializeToString()


def test_json_in_json_out(start: Start) -> None:
    server = start()
    document = json.dumps(request_to_json(BODY)).encode()
    status, reply, headers = server.post("/v1/traces", document, content_type="application/json")
    assert (status, json.loads(reply), headers["content-type"]) == (200, {}, "application/json")
    assert len(server.span_ids()) == 2


@pytest.mark.parametrize("signal", ["traces", "logs"])
def test_an_empty_request_is_taken(start: Start, signal: str) -> None:
    server = start()
    assert server.post(f"/v1/{signal}", b"{}", content_type="application/json")[:2] == (200, b"{}")
    assert server.post(f"/v1/{signal}", b"")[:2] == (200, b"")
    assert (server.metric("acknowledged_requests"), refusals(server)) == (2, {})


def test_a_span_that_is_nested_too_deeply_leaves_the_others_in_json_too(start: Start) -> None:
    server = start()
    document = request_to_json(BODY)
    value: object = {"stringValue": "x"}
    for _ in range(200):
        value = {"arrayValue": {"values": [value]}}
    spans = document["resourceSpans"][0]["scopeSpans"][0]["spans"]  # type: ignore[index]
    spans[0]["attributes"] = [{"key": "deep", "value": value}]
    status, reply, _ = server.post("/v1/traces", json.dumps(document).encode(), content_type="application/json")
    part = json.loads(reply)["partialSuccess"]
    assert (status, part["rejectedSpans"]) == (200, "1")
    assert "past 100 levels" in part["errorMessage"]
    assert server.span_ids() == {spans[1]["spanId"]}
    assert server.metric("rejected_spans") == 1


def test_a_refused_span_leaves_the_others(start: Start) -> None:
    server = start()
    replies = [server.post("/v1/traces", with_a_bad_span(BODY))[1], call(server, with_a_bad_span(BODY))]
    for reply in replies:
        part = ExportTraceServiceResponse.FromString(reply).partial_success
        assert part.rejected_spans == 1
        assert part.error_message == "span 'bad' has a trace id of 5 bytes instead of 16"
    assert len(server.span_ids()) == 2
    assert server.metric("rejected_spans") == 2


@pytest.mark.parametrize(
    ("body", "headers", "status", "reason"),
    [
        (b"nonsense", {}, 400, "not an OTLP trace request"),
        (BODY, {"content_type": "text/plain"}, 415, "content type"),
        (b"{", {"content_type": "application/json"}, 400, "not JSON"),
        (b"[" * 100_000, {"content_type": "application/json"}, 400, "nested too deeply"),
        (BODY, {"content_encoding": "br"}, 400, "gzip"),
        (b"\x1f\x8bnonsense", {"content_encoding": "gzip"}, 400, "gzip"),
        (gzip.compress(BODY)[:-9], {"content_encoding": "gzip"}, 400, "cut off"),
        (gzip.compress(bytes(8 << 20)), {"content_encoding": "gzip"}, 413, "times its size"),
        (
            gzip.compress(bytes(1 << 20) * 4 + random.randbytes(1 << 17)),
            {"content_encoding": "gzip"},
            413,
            "larger than",
        ),
        (bytes(5 << 20), {}, 413, "larger than"),
        (b'{"resourceSpans": [' + b" " * (2 << 20) + b"]}", {"content_type": "application/json"}, 413, "JSON larger"),
        (BODY, {"origin": "http://localhost"}, 403, "web page"),
    ],
)
def test_what_cannot_be_taken_is_refused_by_name(
    start: Start, body: bytes, headers: dict[str, str], status: int, reason: str
) -> None:
    server = start(MEMTRACE_MAX_REQUEST_BYTES=str(MOST))
    found, reply, _ = server.post("/v1/traces", body, **headers)
    assert found == status
    text = json.loads(reply)["message"] if headers.get("content_type") == "application/json" else reply.decode()
    assert reason in text
    cause = {413: "too_large", 403: "unauthorized"}.get(status, "unreadable")
    assert refusals(server) == {cause: 1}
    assert server.post("/v1/traces", BODY)[0] == 200


@pytest.mark.parametrize(
    ("body", "compression", "code", "cause"),
    [
        (b"nonsense", grpc.Compression.NoCompression, grpc.StatusCode.INVALID_ARGUMENT, "unreadable"),
        (b"\x1f\x8bnonsense", grpc.Compression.NoCompression, grpc.StatusCode.INVALID_ARGUMENT, "unreadable"),
        (bytes(5 << 20), grpc.Compression.NoCompression, grpc.StatusCode.RESOURCE_EXHAUSTED, "too_large"),
        (bytes(8 << 20), grpc.Compression.Gzip, grpc.StatusCode.INVALID_ARGUMENT, "too_large"),
        (bytes(8 << 20), grpc.Compression.Deflate, grpc.StatusCode.INVALID_ARGUMENT, "too_large"),
        (bytes(64 << 20), grpc.Compression.Gzip, grpc.StatusCode.INVALID_ARGUMENT, "too_large"),
        (random.randbytes(5 << 20), grpc.Compression.Gzip, grpc.StatusCode.RESOURCE_EXHAUSTED, "too_large"),
    ],
)
def test_the_same_over_grpc(
    start: Start, body: bytes, compression: grpc.Compression, code: grpc.StatusCode, cause: str
) -> None:
    server = start(MEMTRACE_MAX_REQUEST_BYTES=str(MOST))
    with pytest.raises(grpc.RpcError) as caught:
        call(server, body, compression)
    assert caught.value.code() is code  # type: ignore[attr-defined]
    assert refusals(server) == {cause: 1}
    assert call(server, BODY, compression) == b""
    assert len(server.span_ids()) == 2


def test_a_server_that_is_behind_says_when_to_come_again(start: Start) -> None:
    server = start(MEMTRACE_INBOX_BYTES="1")
    assert server.post("/v1/traces", BODY)[0] == 200
    status, reply, headers = server.post("/v1/traces", BODY)
    while status == 200:  # decoded in the meantime
        status, reply, headers = server.post("/v1/traces", BODY)
    assert (status, headers["retry-after"]) == (429, "5")
    assert Status.FromString(reply).code == grpc.StatusCode.RESOURCE_EXHAUSTED.value[0]
    server.until(lambda: server.post("/v1/traces", BODY)[0] == 200)


def test_grpc_tells_it_too(start: Start) -> None:
    server = start(MEMTRACE_INBOX_BYTES="1")
    with pytest.raises(grpc.RpcError) as caught:
        [call(server, BODY) for _ in range(1000)]
    error = caught.value
    assert error.code() is grpc.StatusCode.RESOURCE_EXHAUSTED  # type: ignore[attr-defined]
    trailers = dict(error.trailing_metadata())  # type: ignore[attr-defined]
    assert RetryInfo.FromString(trailers["google.rpc.retryinfo-bin"]).retry_delay.seconds == 5
    (detail,) = Status.FromString(trailers["grpc-status-details-bin"]).details
    assert detail.Is(RetryInfo.DESCRIPTOR)


def test_an_exporter_comes_again_by_itself(start: Start) -> None:
    server = start(MEMTRACE_INBOX_BYTES="1")
    sender = HttpExporter(endpoint=f"{server.http}/v1/traces", timeout=30)
    assert [sender.export(spans(5)) for _ in range(3)] == [SpanExportResult.SUCCESS] * 3
    assert server.metric('refused_requests_total{reason="behind"}') >= 1


def test_with_a_token_only_who_bears_it_may_send(start: Start) -> None:
    server = start("--host", "0.0.0.0", MEMTRACE_SERVE_TOKEN="secret")
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


@pytest.mark.parametrize("replaced", [False, True])
def test_where_its_file_is_no_longer_in_place_it_acknowledges_nothing(start: Start, replaced: bool) -> None:
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
    assert "moved, removed or replaced while it is open" in (
        server.process.stderr.read() if server.process.stderr else ""
    )


def refused_start(tmp_path: Path, *options: str) -> str:
    command = [sys.executable, "-m", "memtrace_otel.cli", "serve", "--db", str(tmp_path / "a.db"), *options]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == 2
    assert "Traceback" not in done.stderr
    return done.stderr


def test_another_address_without_a_token_is_refused(tmp_path: Path) -> None:
    assert "MEMTRACE_SERVE_TOKEN" in refused_start(tmp_path, "--host", "0.0.0.0")
    assert not (tmp_path / "a.db").exists()


def test_a_database_in_a_folder_that_is_not_there_is_refused(tmp_path: Path) -> None:
    assert "there is no folder" in refused_start(tmp_path, "--db", str(tmp_path / "mistyped" / "a.db"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("option", ["--grpc-port", "--http-port"])
def test_a_port_that_is_taken_is_named(tmp_path: Path, option: str) -> None:
    other = "--http-port" if option == "--grpc-port" else "--grpc-port"
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert f"127.0.0.1:{port}" in refused_start(tmp_path, option, port, other, "0")


def certified(folder: Path) -> tuple[Path, Path]:
    """A certificate for `localhost`, and its key."""
    certificate, key = folder / "cert.pem", folder / "key.pem"
    make = "openssl req -x509 -newkey rsa:2048 -nodes -days 2 -subj /CN=localhost -addext subjectAltName=DNS:localhost"
    subprocess.run([*make.split(), "-out", certificate, "-keyout", key], check=True, capture_output=True)
    return certificate, key


def test_tls(start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):  # they would win over the exporter's own certificate
        monkeypatch.delenv(name, raising=False)
    certificate, key = certified(tmp_path)
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
    assert "--tls-key" in refused_start(tmp_path, "--tls-cert", str(certificate))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_it_ends_in_order(start: Start, number: signal.Signals) -> None:
    server = start()
    for _ in range(5):
        assert server.post("/v1/traces", BODY)[0] == 200
    server.process.send_signal(number)
    assert server.process.wait(20) == 0
    assert server.process.stderr is not None
    assert server.process.stderr.read() == ""
    assert len(server.span_ids()) == 2


@pytest.mark.parametrize("said", ["a request", "no request", "nothing"])
def test_it_does_not_wait_for_connections_that_are_kept(start: Start, tmp_path: Path, said: str) -> None:
    certificate, key = certified(tmp_path)
    server = start("--tls-cert", str(certificate), "--tls-key", str(key), scheme="https")
    context = ssl.create_default_context(cafile=certificate)
    connection = socket.create_connection(("localhost", int(server.http.rpartition(":")[2])))
    with connection if said == "nothing" else context.wrap_socket(connection, server_hostname="localhost") as kept:
        if said == "a request":
            kept.sendall(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert b" 200 " in kept.recv(4096)
        began = time.monotonic()
        assert server.terminate() == 0
        assert time.monotonic() - began < 5
        assert server.process.stderr is not None
        assert server.process.stderr.read() == ""


def test_metrics_count_what_happened(start: Start) -> None:
    server = start()
    server.post("/v1/traces", BODY)
    server.post("/v1/traces", b"nonsense")
    server.until(lambda: server.metric("decoded_spans") == 2)
    assert server.metric("acknowledged_requests") == 1
    assert server.metric("acknowledged_spans") == 2
    assert server.metric("acknowledged_bytes") == len(BODY)
    assert server.metric('refused_requests_total{reason="unreadable"}') == 1
