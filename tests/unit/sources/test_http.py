"""Requests to a backend: retries, bounds of time and size, no secret in an error."""

from __future__ import annotations

import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from memtrace_otel.sources import SourceError
from memtrace_otel.sources.http import BackendApi, Budget, LimitError, ReplyError
from tests.unit.sources.backend_api import Asked, answering

SECRET = {"authorization": "Bearer s3cret"}


@pytest.fixture
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The pauses between tries (s), which take no time."""
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    return waited


def api(asked: Asked, tries: int = 2, reply_bytes: int = 1000) -> BackendApi:
    return BackendApi(f"{asked.url}/base/", SECRET, timeout=10, tries=tries, reply_bytes=reply_bytes)


@contextmanager
def serving(answer: Callable[[socket.socket], None], times: int) -> Iterator[str]:
    """A server that reads a request and lets `answer` write to the connection, so many times."""

    def serve() -> None:
        for _ in range(times):
            with server.accept()[0] as connection:
                connection.recv(65536)
                answer(connection)

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}"


def test_headers_go_with_every_request_below_the_path_of_the_address() -> None:
    with answering(lambda path, query: (200, b"{}")) as asked:
        assert api(asked).get("/api/x", {"q": "a b&c"}) == b"{}"
    ((path, query, headers),) = asked.requests
    assert (path, query, headers["authorization"]) == ("/base/api/x", {"q": "a b&c"}, "Bearer s3cret")


def test_a_thing_that_may_miss_is_empty_and_any_other_404_is_a_wrong_address() -> None:
    with answering(lambda path, query: (404, b"page not found")) as asked:
        assert api(asked).get("/api/x", may_miss=True) == b""
        assert api(asked).get_json("/api/x", may_miss=True) == {}
        with pytest.raises(SourceError, match=r"/api/x: HTTP 404 page not found \(is this the port of the HTTP API"):
            api(asked).get("/api/x")
    assert len(asked.requests) == 3


@pytest.mark.parametrize("body", [b"no such token: s3cret", b"Bearer s3cret", b"s3cret" * 100, b"." * 298 + b"s3cret"])
def test_no_part_of_a_secret_is_in_an_error(body: bytes) -> None:
    with answering(lambda path, query: (503, body)) as asked, pytest.raises(ReplyError) as raised:
        api(asked, tries=1).get("/")
    assert "s3" not in str(raised.value)
    assert len(str(raised.value)) < 400


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_busy_backend_is_asked_again_after_longer_and_longer_pauses(status: int, waits: list[float]) -> None:
    replies = [(status, b"busy"), (status, b"busy"), (200, b"{}")]
    with answering(lambda path, query: replies.pop(0)) as asked:
        assert api(asked, tries=3).get("/") == b"{}"
    assert 0 < waits[0] < waits[1] * 2 < 4


def test_retry_after_says_how_long_the_pause_is(waits: list[float]) -> None:
    replies = [b"429 Too Many Requests\r\nretry-after: 7\r\n", b"503 Busy\r\nretry-after: 3600\r\n", b"200 OK\r\n"]

    def answer(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 " + replies.pop(0) + b"connection: close\r\ncontent-length: 2\r\n\r\n{}")

    with serving(answer, 3) as url:
        assert BackendApi(url, timeout=10).get("/") == b"{}"
    assert waits == [7, 10]


def test_a_backend_that_stays_busy_is_an_error_with_its_reply(waits: list[float]) -> None:
    with answering(lambda path, query: (503, b"out\nof \x1b[31mmemory s3cret Bearer s3cret")) as asked:
        with pytest.raises(ReplyError, match=r"/api/x: HTTP 503 out of .*memory") as raised:
            api(asked).get("/api/x")
        assert len(asked.requests) == 2
    assert "s3cret" not in str(raised.value)
    assert "\x1b" not in str(raised.value)
    assert raised.value.status == 503


def test_a_backend_that_does_not_listen_is_an_error(waits: list[float]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with pytest.raises(SourceError, match=rf"{url}: /: .*Connection refused"):
        BackendApi(url, SECRET, timeout=10).get("/")
    assert len(waits) == 4


@pytest.mark.parametrize("status", [401, 403])
def test_missing_authentication_is_an_error_that_names_the_settings(status: int) -> None:
    with answering(lambda path, query: (status, b"")) as asked:
        with pytest.raises(SourceError, match="MEMTRACE_SOURCE_TOKEN"):
            api(asked).get("/")
        assert len(asked.requests) == 1


def test_a_redirect_is_not_followed() -> None:
    with answering(lambda path, query: (302, b"")) as asked:
        with pytest.raises(SourceError, match="HTTP 302"):
            api(asked).get("/")
        assert len(asked.requests) == 1


def test_a_request_that_the_backend_refuses_is_not_tried_again() -> None:
    with answering(lambda path, query: (400, b"invalid TraceQL query")) as asked:
        with pytest.raises(ReplyError, match="invalid TraceQL query"):
            api(asked).get("/")
        assert len(asked.requests) == 1


def test_every_try_counts_against_the_budget(waits: list[float]) -> None:
    with answering(lambda path, query: (503, b"")) as asked:
        bounded = api(asked, tries=5).within(Budget(requests=3))
        with pytest.raises(LimitError, match="3 requests"):
            bounded.get("/")
        assert len(asked.requests) == 3
        with pytest.raises(ReplyError):
            api(asked).get("/")


def test_a_reply_has_a_bound_of_size() -> None:
    with answering(lambda path, query: (200, b"x" * 100)) as asked:
        with pytest.raises(ReplyError, match="more than 99 bytes"):
            api(asked, reply_bytes=99).get("/")
        assert api(asked, reply_bytes=100).get("/") == b"x" * 100


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"\xff", b"[" * 100_000])
def test_a_reply_that_is_no_json_object_is_an_error(body: bytes) -> None:
    with (
        answering(lambda path, query: (200, body)) as asked,
        pytest.raises(ReplyError, match="no JSON object"),
    ):
        api(asked, reply_bytes=200_000).get_json("/")


def test_a_reply_that_is_cut_off_is_asked_for_again(waits: list[float]) -> None:
    bodies = [b"{", b'{"a": 1}', b"{", b"{"]

    def answer(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n" + bodies.pop(0))

    with serving(answer, 4) as url:
        given = BackendApi(url, timeout=10, tries=2)
        assert given.get_json("/") == {"a": 1}
        given.close()
        with pytest.raises(ReplyError, match="without sending complete message body"):
            given.get("/")


@pytest.mark.parametrize("head", [b"", b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n"])
def test_a_backend_that_sends_a_byte_now_and_then_holds_a_request_no_longer_than_its_timeout(head: bytes) -> None:
    ended = threading.Event()

    def drip(connection: socket.socket) -> None:
        connection.sendall(head)
        for _ in range(1000):
            try:
                connection.sendall(b"x" if head else b"H"[: not ended.is_set()])
            except OSError:
                return
            if ended.wait(0.05):
                return

    began = time.monotonic()
    with serving(drip, 1) as url:
        with pytest.raises(ReplyError, match=r"no whole reply within 0\.4 s"):
            BackendApi(url, timeout=0.4).get("/")
        ended.set()
    assert time.monotonic() - began < 5


def test_a_connection_that_the_backend_has_closed_is_opened_again(waits: list[float]) -> None:
    def answer(connection: socket.socket) -> None:
        connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}")

    with serving(answer, 2) as url:
        given = BackendApi(url, timeout=10)
        assert [given.get("/"), given.get("/")] == [b"{}", b"{}"]


def test_a_program_that_only_opens_a_database_does_not_load_httpx() -> None:
    code = "import sys, memtrace_otel.sources; print('httpx' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
