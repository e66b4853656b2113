"""Requests to a backend: bounded, tried again, silent about secrets."""

from __future__ import annotations

import socket
import threading
import time

import pytest

from memtrace_otel.sources import SourceLimitError, StoreError
from memtrace_otel.sources.http import Address, BackendApi, Bounds, FailedError, RefusedError, UnreachableError
from tests.unit.sources.backend_api import Asked, answering

SECRET = {"authorization": "Bearer s3cret"}


@pytest.fixture(autouse=True)
def waits(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """What would have been waited for, in seconds."""
    waited: list[float] = []
    monkeypatch.setattr(time, "sleep", waited.append)
    return waited


def api(asked: Asked, **bounds: int) -> BackendApi:
    return BackendApi(Address(False, "127.0.0.1", asked.port, "/base"), SECRET, Bounds(**bounds))


def test_headers_go_with_every_request_below_the_path_of_the_address() -> None:
    with answering(lambda path, query: (200, b"{}")) as asked:
        assert api(asked).get("/api/x", {"q": "a b&c"}) == b"{}"
    ((path, query, headers),) = asked.requests
    assert (path, query, headers["authorization"]) == ("/base/api/x", {"q": "a b&c"}, "Bearer s3cret")


def test_what_is_not_there_is_empty() -> None:
    with answering(lambda path, query: (404, b"no such trace")) as asked:
        assert api(asked).get("/api/x", may_miss=True) == b""
        assert api(asked).get_json("/api/x", may_miss=True) == {}


def test_what_is_always_there_and_is_not_is_an_error_that_doubts_the_address() -> None:
    with answering(lambda path, query: (404, b"page not found")) as asked:
        for get in (api(asked).get, api(asked).get_json):
            with pytest.raises(StoreError, match=r"/api/x: HTTP 404 page not found \(is this the port of the HTTP API"):
                get("/api/x")
        assert len(asked.requests) == 2


@pytest.mark.parametrize("body", [b"no such token: s3cret", b"Bearer s3cret", b"s3cret" * 100, b"." * 298 + b"s3cret"])
def test_no_part_of_a_secret_is_repeated(body: bytes) -> None:
    with answering(lambda path, query: (503, body)) as asked, pytest.raises(UnreachableError) as raised:
        api(asked, tries=1).get("/")
    assert "s3" not in str(raised.value)
    assert len(str(raised.value)) < 400


def test_in_a_hurry_it_tries_once_and_waits_no_longer(waits: list[float]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        given = BackendApi(Address(False, "127.0.0.1", silent.getsockname()[1]))
        given.hurry(0.05)
        with pytest.raises(UnreachableError, match=r"timed out \(1 tries\)"):
            given.get("/")
        given.hurry(1000)
    assert (given.bounds.seconds, given.spent.requests, waits) == (Bounds().seconds, 1, [])


@pytest.mark.parametrize("status", [429, 500, 502, 503, 504])
def test_a_busy_backend_is_asked_again_after_longer_and_longer(status: int, waits: list[float]) -> None:
    replies = [(status, b"busy"), (status, b"busy"), (200, b"{}")]
    with answering(lambda path, query: replies.pop(0)) as asked:
        given = api(asked)
        assert given.get("/") == b"{}"
        assert (given.spent.requests, given.spent.retries) == (3, 2)
    assert 0 < waits[0] < waits[1] * 2 < 4


def test_one_that_stays_busy_is_an_error_that_says_what_it_said() -> None:
    with answering(lambda path, query: (503, b"out\nof \x1b[31mmemory s3cret Bearer s3cret")) as asked:
        with pytest.raises(UnreachableError, match=r"/api/x: HTTP 503 out of \[31mmemory") as raised:
            api(asked, tries=2).get("/api/x")
        assert len(asked.requests) == 2
    assert "s3cret" not in str(raised.value)


def test_what_it_failed_at_is_tried_once_until_it_is_answered() -> None:
    status = 500
    with answering(lambda path, query: (status, b"{}")) as asked:
        given = api(asked, tries=3)
        for tried in (3, 4, 5):
            with pytest.raises(FailedError):
                given.get("/api/x")
            assert len(asked.requests) == tried
        status = 200
        given.get("/api/x")
        status = 500
        with pytest.raises(FailedError):
            given.get("/api/x")
        assert len(asked.requests) == 9


def test_one_that_does_not_listen_is_an_error() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    with pytest.raises(UnreachableError, match=rf"http://127.0.0.1:{port}: /: Connection refused \(2 tries\)"):
        BackendApi(Address(False, "127.0.0.1", port), SECRET, Bounds(tries=2)).get("/")


@pytest.mark.parametrize("status", [401, 403])
def test_who_may_not_ask_is_told_what_to_set_and_asks_once(status: int) -> None:
    with answering(lambda path, query: (status, b"")) as asked:
        with pytest.raises(UnreachableError, match="MEMTRACE_SOURCE_TOKEN"):
            api(asked).get("/")
        assert len(asked.requests) == 1


def test_a_redirect_is_not_followed() -> None:
    with answering(lambda path, query: (302, b"")) as asked:
        with pytest.raises(StoreError, match="HTTP 302"):
            api(asked).get("/")
        assert len(asked.requests) == 1


def test_a_request_that_it_does_not_take_is_told_apart() -> None:
    refused = pytest.raises(RefusedError, match="invalid TraceQL query")
    with answering(lambda path, query: (400, b"invalid TraceQL query")) as asked, refused:
        api(asked).get("/")


def test_requests_and_bytes_have_bounds_that_each_case_adds_to() -> None:
    with answering(lambda path, query: (200, b"x" * 100)) as asked:
        few = api(asked, requests=2)
        for _ in range(2):
            few.get("/")
        with pytest.raises(SourceLimitError, match="2 requests a failing trace"):
            few.get("/")
        few.allow(2)
        for _ in range(4):
            few.get("/")
        with pytest.raises(SourceLimitError):
            few.get("/")
        small = api(asked, bytes=150)
        small.get("/")
        with pytest.raises(SourceLimitError, match="150 bytes a failing trace"):
            small.get("/")


def test_what_is_allowed_already_stays_allowed() -> None:
    with answering(lambda path, query: (200, b"{}")) as asked:
        given = api(asked, requests=2)
        given.allow(2)
        given.allow_at_least(1)
        for _ in range(3):
            given.get("/")
        given.allow_at_least(1)
        for _ in range(2):
            given.get("/")
        with pytest.raises(SourceLimitError):
            given.get("/")


def test_replies_that_are_too_large_count_too() -> None:
    with answering(lambda path, query: (200, b"x" * 100)) as asked:
        given = api(asked, reply_bytes=49, bytes=100)
        for is_reply in (True, True, False):
            with pytest.raises(SourceLimitError) as raised:
                given.get("/")
            assert raised.value.is_reply is is_reply
        assert given.spent.bytes == 150  # a byte more than fits tells that one is too large


def test_a_reply_has_a_bound_of_its_own() -> None:
    with answering(lambda path, query: (200, b"x" * 100)) as asked:
        with pytest.raises(SourceLimitError, match="more than 99 bytes") as raised:
            api(asked, reply_bytes=99).get("/")
        assert raised.value.is_reply
        assert api(asked, reply_bytes=100).get("/") == b"x" * 100


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"\xff", b"[" * 100_000])
def test_what_is_no_json_object_is_an_error(body: bytes) -> None:
    with (
        answering(lambda path, query: (200, body)) as asked,
        pytest.raises(StoreError, match="no JSON object") as raised,
    ):
        api(asked).get_json("/")
    assert not isinstance(raised.value, SourceLimitError)


def test_what_may_not_be_there_may_be_no_json_object_for_now() -> None:
    with answering(lambda path, query: (200, b"<html>")) as asked, pytest.raises(SourceLimitError) as raised:
        api(asked).get_json("/", may_miss=True)
    assert (raised.value.is_reply, raised.value.may_pass) == (True, True)


def test_a_reply_that_is_cut_off_is_asked_for_again() -> None:
    replies = [b"{", b'{"a": 1}']

    def answer() -> None:
        for body in replies:
            with server.accept()[0] as connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n" + body)

    with socket.create_server(("127.0.0.1", 0)) as server:
        answering = threading.Thread(target=answer)
        answering.start()
        given = BackendApi(Address(False, "127.0.0.1", server.getsockname()[1]))
        assert given.get_json("/", may_miss=True) == {"a": 1}
        given.close()
        answering.join()
    assert given.spent.retries == 1


def test_a_reply_that_is_always_cut_off_is_the_failure_of_this_request() -> None:
    def answer() -> None:
        for _ in range(2):
            with server.accept()[0] as connection:
                connection.recv(65536)
                connection.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n{")

    with socket.create_server(("127.0.0.1", 0)) as server:
        answering = threading.Thread(target=answer)
        answering.start()
        given = BackendApi(Address(False, "127.0.0.1", server.getsockname()[1]), bounds=Bounds(tries=2))
        with pytest.raises(FailedError, match="7 more expected"):
            given.get("/")
        answering.join()


def test_a_connection_that_was_closed_meanwhile_is_opened_again() -> None:
    with answering(lambda path, query: (200, b"{}")) as asked:
        given = api(asked)
        given.get("/")
        given.close()
        assert given.get("/") == b"{}"


def test_one_that_the_backend_has_closed_unsaid_is_opened_again_at_once() -> None:
    """In a hurry nothing is tried twice, and backends close what was idle for a while."""
    reply = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}"
    asked: list[bytes] = []

    def answer_once_each() -> None:
        for _ in range(3):
            with server.accept()[0] as connection:
                asked.append(connection.recv(65536))
                connection.sendall(reply if len(asked) < 3 else b"")

    with socket.create_server(("127.0.0.1", 0)) as server:
        answering = threading.Thread(target=answer_once_each)
        answering.start()
        given = BackendApi(Address(False, "127.0.0.1", server.getsockname()[1]), bounds=Bounds(tries=1))
        assert [given.get("/"), given.get("/")] == [b"{}", b"{}"]
        given.close()
        with pytest.raises(UnreachableError):  # a new one is not tried twice
            given.get("/")
        answering.join()
