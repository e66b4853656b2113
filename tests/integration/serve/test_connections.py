"""Connections that are slow, silent or many against a running server."""

from __future__ import annotations

import select
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from itertools import takewhile
from urllib.parse import urlsplit

import grpc
import pytest

from memtrace_otel.otlp import encode_request
from memtrace_otel.testing import contract_span
from tests.integration.serve.conftest import Server, Start
from tests.integration.serve.test_server import BODY, METHOD, call

HASTE = "import memtrace_otel.serve.connections as c; c.HEAD_SECONDS = 0.5"
LARGE = encode_request([replace(contract_span(1, 1), attributes={"text": "x" * 900_000})])


def connect(server: Server) -> socket.socket:
    address = urlsplit(server.http)
    return socket.create_connection((address.hostname, address.port), 20)


def head(body: bytes) -> bytes:
    return (
        b"POST /v1/traces HTTP/1.1\r\nhost: x\r\ncontent-type: application/x-protobuf\r\n"
        + f"content-length: {len(body)}\r\n\r\n".encode()
    )


def is_closed(connection: socket.socket) -> bool:
    """Whether the server ends it within 20 seconds, after the rest of its reply."""
    try:
        while connection.recv(4096):
            pass
    except ConnectionResetError:
        pass
    except TimeoutError:
        return False
    return True


@pytest.mark.parametrize("said", [b"", b"POST /v1/tra", b"POST /v1/traces HTTP/1.1\r\nx: 1\r\n"])
def test_who_sends_no_whole_head_is_let_go(start: Start, said: bytes) -> None:
    server = start(first=HASTE)
    with connect(server) as silent, connect(server) as second:
        silent.sendall(said)
        second.sendall(head(BODY) + BODY)
        assert b" 200 " in second.recv(4096)
        second.sendall(b"POST /v1/tra")  # a further request that never comes
        assert is_closed(silent)
        assert is_closed(second)


def test_a_head_that_comes_byte_by_byte_is_let_go(start: Start) -> None:
    server = start(first=HASTE)
    with connect(server) as slow:
        slow.sendall(b"POST /v1/traces HTTP/1.1\r\nx: ")
        for _ in range(100):
            slow.sendall(b"y")
            if select.select([slow], [], [], 0.05)[0]:
                break
        assert is_closed(slow)
        assert server.post("/v1/traces", BODY)[0] == 200


def test_a_body_that_never_ends_is_refused_in_time(start: Start) -> None:
    server = start(first="import memtrace_otel.otlp.receiver.http as h; h._READ_SECONDS = 0.5")
    with connect(server) as slow:
        slow.sendall(head(BODY) + BODY[:-1])
        assert b" 408 " in slow.recv(4096)
        assert is_closed(slow)
    assert server.post("/v1/traces", BODY)[0] == 200
    assert len(server.span_ids()) == 2


def test_a_slow_body_is_taken(start: Start) -> None:
    server = start(first=HASTE)
    with connect(server) as slow:
        slow.sendall(head(BODY))
        for part in (BODY[:10], BODY[10:20], BODY[20:]):
            time.sleep(0.4)
            slow.sendall(part)
        assert b" 200 " in slow.recv(4096)


def test_many_idle_connections_leave_room_for_others(start: Start) -> None:
    server = start(first="import memtrace_otel.serve.server as s; s.MOST_CONNECTIONS = 100")
    with ExitStack() as opened:
        idle = [opened.enter_context(connect(server)) for _ in range(300)]
        assert call(server, BODY) == b""
        server.until(lambda: len(select.select(idle, [], [], 0)[0]) >= 200)
        server.until(lambda: len(select.select(idle, [], [], 0)[0]) == 300)
        assert all(map(is_closed, idle))
        assert server.post("/v1/traces", BODY)[0] == 200


def test_calls_of_grpc_that_send_nothing_give_way(start: Start) -> None:
    server = start(first="import memtrace_otel.otlp.receiver.grpc_server as g; g._READ_SECONDS = 1.0")

    def never() -> Iterator[bytes]:
        time.sleep(5)
        yield BODY

    with grpc.insecure_channel(server.grpc) as channel:
        left = [channel.stream_unary(METHOD).future(never()) for _ in range(20)]
        time.sleep(0.3)
        taken = (channel.unary_unary(METHOD).future(BODY, timeout=20) for _ in range(50))
        codes = [one.code() for one in takewhile(lambda one: one.code() is not grpc.StatusCode.OK, taken)]
        assert len(codes) < 50
        assert set(codes) <= {grpc.StatusCode.RESOURCE_EXHAUSTED}  # with a hint when to come again
        assert {one.exception().code() for one in left} == {grpc.StatusCode.RESOURCE_EXHAUSTED}  # type: ignore[union-attr]


def test_what_is_half_sent_at_the_end_is_taken(start: Start) -> None:
    server = start()
    with connect(server) as sending:
        sending.sendall(head(LARGE) + LARGE[:-1])
        time.sleep(0.5)
        server.process.terminate()
        time.sleep(0.5)
        sending.sendall(LARGE[-1:])
        assert b" 200 " in sending.recv(4096)
    assert server.process.wait(20) == 0
    assert len(server.span_ids()) == 1
