"""Slow, silent and many connections: the server goes on answering, with bounded memory and descriptors."""

from __future__ import annotations

import os
import re
import select
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import replace
from itertools import takewhile
from pathlib import Path
from urllib.parse import urlsplit

import grpc
from google.rpc.error_details_pb2 import RetryInfo

from memtrace_otel.otlp import encode_request
from memtrace_otel.testing import contract_span
from tests.integration.serve.conftest import Server, Start
from tests.integration.serve.test_server import BODY, METHOD, call

SHORT_HEADS = "import memtrace_otel.serve.connections as c; c.Connections.sweep.__defaults__ = (0.5, 10.0)"
MOST = 8 << 20
LARGE = encode_request([replace(contract_span(1, n), attributes={"text": "x" * 75_000}) for n in range(1, 101)])
"""7.5 MB: four such bodies fill the memory for requests of a server with MOST."""
SENDERS = 40


def connect(server: Server) -> socket.socket:
    address = urlsplit(server.http)
    return socket.create_connection((address.hostname, address.port), 20)


def head(body: bytes) -> bytes:
    return (
        b"POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-protobuf\r\n"
        + f"content-length: {len(body)}\r\n\r\n".encode()
    )


def is_closed(connection: socket.socket) -> bool:
    """Tell whether the server closes the connection within 20 seconds, after the rest of its reply."""
    try:
        while connection.recv(4096):
            pass
    except ConnectionResetError:
        pass
    except TimeoutError:
        return False
    return True


def peak(server: Server) -> int:
    """Return the most bytes that the receiving process ever had in memory."""
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) << 10


def test_connections_without_complete_headers_are_closed(start: Start) -> None:
    server = start(first=SHORT_HEADS)
    with ExitStack() as opened:
        silent = [opened.enter_context(connect(server)) for _ in range(3)]
        for connection, sent in zip(silent, (b"", b"POST /v1/tra", b"POST / HTTP/1.1\r\nx: 1\r\n"), strict=True):
            connection.sendall(sent)
        second = opened.enter_context(connect(server))
        second.sendall(head(BODY) + BODY)
        assert b" 200 " in second.recv(4096)
        second.sendall(b"POST /v1/tra")  # the rest of a second request does not come
        assert all(map(is_closed, [*silent, second]))
        slow = opened.enter_context(connect(server))
        slow.sendall(b"POST /v1/traces HTTP/1.1\r\nx: ")
        for _ in range(100):
            slow.sendall(b"y")
            if select.select([slow], [], [], 0.05)[0]:
                break
        assert is_closed(slow)
        body = opened.enter_context(connect(server))
        body.sendall(head(BODY))
        for part in (BODY[:10], BODY[10:20], BODY[20:]):
            time.sleep(0.4)
            body.sendall(part)
        assert b" 200 " in body.recv(4096)


def test_a_body_that_does_not_end_is_refused_in_time(start: Start) -> None:
    server = start(first="import memtrace_otel.otlp.receiver.http as h; h._READ_SECONDS = 0.5")
    with connect(server) as slow:
        slow.sendall(head(BODY) + BODY[:-1])
        assert b" 408 " in slow.recv(4096)
        assert is_closed(slow)
    assert server.post("/v1/traces", BODY)[0] == 200
    assert len(server.span_ids()) == 2


def test_health_is_answered_amid_a_flood_of_half_open_requests(start: Start) -> None:
    """600 connections with half a head, 600 with half a body; the bound is 512."""
    server = start()
    with ExitStack() as opened:
        for sent in (b"POST /v1/tra", head(BODY) + BODY[:-1]):
            flood = [opened.enter_context(connect(server)) for _ in range(600)]
            for connection in flood:
                with suppress(BrokenPipeError, ConnectionResetError):  # closed in favour of a newer connection
                    connection.sendall(sent)
            began = time.monotonic()
            assert '"ok"' in server.get("/health")
            assert time.monotonic() - began < 5
        assert call(server, BODY) == b""
        assert len(os.listdir(f"/proc/{server.process.pid}/fd")) < 700


def test_idle_connections_of_grpc_are_bounded(start: Start) -> None:
    """Without a bound 1,100 of them used up the descriptors, and the log grew by 127 MB a minute."""
    server = start()
    host, _, port = server.grpc.rpartition(":")
    with ExitStack() as opened:
        for _ in range(1_100):
            opened.enter_context(socket.create_connection((host, int(port)), 20))
        time.sleep(1)
        assert len(os.listdir(f"/proc/{server.process.pid}/fd")) < 600
        assert server.post("/v1/traces", BODY)[0] == 200
        assert '"ok"' in server.get("/health")
    server.until(lambda: succeeds(server))
    server.terminate()
    assert len(server.errors()) < 10_000


def succeeds(server: Server) -> bool:
    try:
        return call(server, BODY) == b""
    except grpc.RpcError:
        return False


def never() -> Iterator[bytes]:
    time.sleep(5)
    yield BODY


def test_calls_of_grpc_without_a_body_do_not_block_others(start: Start) -> None:
    server = start(first="import memtrace_otel.otlp.receiver.grpc_server as g; g._READ_SECONDS = 1.0")
    with grpc.insecure_channel(server.grpc) as channel:
        left = [channel.stream_unary(METHOD).future(never()) for _ in range(20)]
        time.sleep(0.3)
        taken = (channel.unary_unary(METHOD).future(BODY, timeout=20) for _ in range(50))
        codes = [one.code() for one in takewhile(lambda one: one.code() is not grpc.StatusCode.OK, taken)]
        assert len(codes) < 50
        assert set(codes) <= {grpc.StatusCode.RESOURCE_EXHAUSTED}
        assert {one.exception().code() for one in left} == {grpc.StatusCode.RESOURCE_EXHAUSTED}  # type: ignore[union-attr]


def test_a_request_that_arrives_while_the_server_ends_is_taken(start: Start) -> None:
    server = start()
    body = encode_request([replace(contract_span(1, 1), attributes={"text": "x" * 900_000})])
    with connect(server) as sending:
        sending.sendall(head(body) + body[:-1])
        time.sleep(0.5)
        server.process.terminate()
        time.sleep(0.5)
        sending.sendall(body[-1:])
        assert b" 200 " in sending.recv(4096)
    assert server.process.wait(20) == 0
    assert len(server.span_ids()) == 1


def test_half_sent_bodies_take_bounded_memory(start: Start) -> None:
    server = start(MEMTRACE_MAX_REQUEST_BYTES=str(MOST))
    before = peak(server)
    connections = [connect(server) for _ in range(SENDERS)]
    for connection in connections:
        connection.sendall(head(LARGE) + LARGE[:-1])
    assert server.get("/health")
    assert peak(server) - before < 6 * MOST
    replies: list[bytes] = []
    for connection in connections:
        connection.sendall(LARGE[-1:])
        replies.append(connection.recv(4096))
        connection.close()
    refused = [reply for reply in replies if b" 200 " not in reply]
    assert SENDERS - 4 <= len(refused) < SENDERS
    assert all(b" 429 " in reply and b"retry-after: 1" in reply for reply in refused)
    assert server.metric('refused_requests_total{reason="memory"}') == len(refused)
    assert server.post("/v1/traces", LARGE)[0] == 200


def test_many_calls_of_grpc_take_bounded_memory(start: Start) -> None:
    server = start(MEMTRACE_MAX_REQUEST_BYTES=str(MOST))
    before = peak(server)

    def send(_: int) -> grpc.StatusCode:
        options = [("grpc.use_local_subchannel_pool", 1)]
        with grpc.insecure_channel(server.grpc, options=options) as channel:
            try:
                channel.unary_unary(METHOD)(LARGE, timeout=60)
            except grpc.RpcError as error:
                trailers = dict(error.trailing_metadata() or ())  # type: ignore[attr-defined]
                assert RetryInfo.FromString(trailers["google.rpc.retryinfo-bin"]).retry_delay.seconds == 1
                return error.code()  # type: ignore[attr-defined]
        return grpc.StatusCode.OK

    with ThreadPoolExecutor(SENDERS) as pool:
        found = set(pool.map(send, range(SENDERS)))
    assert grpc.StatusCode.OK in found
    assert found <= {grpc.StatusCode.OK, grpc.StatusCode.RESOURCE_EXHAUSTED}
    assert peak(server) - before < 30 * MOST


def test_json_that_takes_long_holds_up_only_large_json(start: Start, tmp_path: Path) -> None:
    first = f"""
import pathlib, time
from memtrace_otel.otlp.receiver import http
read, folder = http.read_json, pathlib.Path({str(tmp_path)!r})
def slow(signal, body, limits):
    if len(body) > 1 << 16:
        (folder / str(body.count(b"?"))).touch()
        while not (folder / "go").exists():
            time.sleep(0.01)
    return read(signal, body, limits)
http.read_json = slow
"""
    server = start(first=f"exec({first!r})")

    def large(number: int) -> int:
        body = b"{}" + b" " * (1 << 16) if not number else b"?" * (1 << 17)
        return server.post("/v1/traces", body, content_type="application/json")[0]

    feedback = b'{"trace_id": "4bf92f3577b34da6a3ce929d0e0e4736", "label": "incorrect"}'
    with ThreadPoolExecutor(2) as pool:
        slow = pool.submit(large, 0)
        server.until((tmp_path / "0").exists)
        waiting = pool.submit(large, 1)
        try:
            assert server.post("/v1/traces", BODY)[0] == 200
            assert server.post("/v1/traces", b"{}", content_type="application/json")[0] == 200
            assert server.post("/v1/feedback", feedback, content_type="application/json")[0] == 200
            assert not slow.done()
            assert not (tmp_path / str(1 << 17)).exists()
        finally:
            (tmp_path / "go").touch()
        assert (slow.result(), waiting.result()) == (200, 400)
