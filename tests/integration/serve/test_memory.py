"""Many large bodies at a time: the memory of a running server stays bounded, who is too many is told when to come."""

from __future__ import annotations

import gzip
import re
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import grpc
from google.rpc.error_details_pb2 import RetryInfo

from memtrace_otel.otlp import encode_request
from memtrace_otel.testing import contract_span
from tests.integration.serve.conftest import Server, Start
from tests.integration.serve.test_server import METHOD

MOST = 8 << 20
BODY = encode_request([replace(contract_span(1, n), attributes={"text": "x" * 75_000}) for n in range(1, 101)])
"""7.5 MB: four of them fill what the requests of such a server may hold."""
SENDERS = 40


def peak(server: Server) -> int:
    """Most bytes that the receiving process ever had in memory."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) << 10


def test_bodies_that_are_half_sent(start: Start) -> None:
    server = start(MEMTRACE_MAX_REQUEST_BYTES=str(MOST))
    before = peak(server)
    address = urlsplit(server.http)
    connections = [socket.create_connection((address.hostname, address.port), 20) for _ in range(SENDERS)]
    head = f"POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-protobuf\r\ncontent-length: {len(BODY)}"
    for connection in connections:
        connection.sendall(head.encode() + b"\r\n\r\n" + BODY[:-1])
    assert server.get("/health")
    assert peak(server) - before < 6 * MOST
    replies: list[bytes] = []
    for connection in connections:
        connection.sendall(BODY[-1:])
        replies.append(connection.recv(4096))
        connection.close()
    refused = [reply for reply in replies if b" 200 " not in reply]
    assert SENDERS - 4 <= len(refused) < SENDERS
    assert all(b" 429 " in reply and b"retry-after: 1" in reply for reply in refused)
    assert server.metric('refused_requests_total{reason="memory"}') == len(refused)
    assert server.post("/v1/traces", BODY)[0] == 200


def test_many_calls_of_grpc(start: Start) -> None:
    server = start(MEMTRACE_MAX_REQUEST_BYTES=str(MOST))
    before = peak(server)

    def call(_: int) -> grpc.StatusCode:
        options = [("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(server.grpc, options=options) as channel:
            try:
                channel.unary_unary(METHOD)(BODY, timeout=60)
            except grpc.RpcError as error:
                trailers = dict(error.trailing_metadata() or ())  # type: ignore[attr-defined]
                assert RetryInfo.FromString(trailers["google.rpc.retryinfo-bin"]).retry_delay.seconds == 1
                return error.code()  # type: ignore[attr-defined]
        return grpc.StatusCode.OK

    with ThreadPoolExecutor(SENDERS) as pool:
        found = set(pool.map(call, range(SENDERS)))
    assert grpc.StatusCode.OK in found
    assert found <= {grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert peak(server) - before < 24 * MOST


def test_a_body_that_never_comes_takes_no_turn_of_others(start: Start) -> None:
    """Calls of gRPC that are opened and left alone."""
    server, waiting = start(), threading.Event()

    def never() -> Iterator[bytes]:
        waiting.wait()
        yield BODY

    with grpc.insecure_channel(server.grpc) as channel:
        left = [channel.stream_unary(METHOD).future(never()) for _ in range(3)]
        assert channel.unary_unary(METHOD)(BODY, timeout=20) == b""
        for call in left:
            call.cancel()
    waiting.set()


def test_json_that_takes_long_holds_up_no_other_sender(start: Start, tmp_path: Path) -> None:
    """But for JSON that is large, too: one such body at a time is read."""
    first = f"""
import pathlib, time
from memtrace_otel.otlp.receiver import http
read, folder = http.from_json, pathlib.Path({str(tmp_path)!r})
def slow(signal, body):
    if len(body) > 1 << 16:
        (folder / str(body.count(b"?"))).touch()
        while not (folder / "go").exists():
            time.sleep(0.01)
    return read(signal, body)
http.from_json = slow
"""
    server = start(first=f"exec({first!r})")

    def large(number: int) -> tuple[int, bytes, dict[str, str]]:
        body = b"{}" + b" " * (1 << 16) if not number else b"?" * (1 << 17)
        return server.post("/v1/traces", body, content_type="application/json")

    request = encode_request([contract_span(1, 1)])
    feedback = b'{"trace_id": "4bf92f3577b34da6a3ce929d0e0e4736", "label": "incorrect"}'
    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(large, 0)
        server.until((tmp_path / "0").exists)
        waiting = pool.submit(large, 1)
        try:
            assert server.post("/v1/traces", request)[0] == 200
            assert server.post("/v1/traces", gzip.compress(request), content_encoding="gzip")[0] == 200
            assert server.post("/v1/traces", b"{}", content_type="application/json")[0] == 200
            for packed in ({}, {"content_encoding": "gzip"}):
                told = gzip.compress(feedback) if packed else feedback
                assert server.post("/v1/feedback", told, content_type="application/json", **packed)[0] == 200
            assert server.post("/v1/traces", b"{}", content_type="application/json", content_encoding="br")[0] == 400
            assert not slow.done()
            assert not (tmp_path / str(1 << 17)).exists()
        finally:
            (tmp_path / "go").touch()
        assert slow.result()[0] == 200
        assert waiting.result()[0] == 400
