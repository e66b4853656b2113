"""Servers that look into a backend before they send: what it shows is not sent again."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from memtrace_otel.otlp import encode_request
from memtrace_otel.sources import SqliteStore
from tests.integration.serve.conftest import Server, Start
from tests.integration.serve.test_two_servers import (
    QUIET,
    each_was_sent_once,
    fail,
    sending_to,
    story,
)
from tests.otlp_json import request_to_json
from tests.unit.sources.backend_api import Asked, answering


class Tempo:
    """Reads for others what a server has received."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.silence: tuple[int, bytes] | None = None

    def answer(self, path: str, query: dict[str, str]) -> tuple[int, bytes]:
        if self.silence:
            return self.silence
        if path.startswith("/api/search"):
            return 200, b'{"traces": []}'
        with SqliteStore.open(self.server.database, create=False) as store:
            trace = encode_request(store.trace(path.rpartition("/")[2]))
        return (200, reply_of(trace)) if trace else (404, b"")


def reply_of(trace: bytes, status: str = "COMPLETE") -> bytes:
    """Return a trace as Tempo's API replies."""
    return json.dumps({"trace": request_to_json(trace), "status": status}).encode()


IN_PART = reply_of(story(3)[1], "PARTIAL")


@pytest.fixture
def backend(start: Start, tmp_path: Path) -> Server:
    return start(database=tmp_path / "backend.db")


@pytest.fixture
def tempo(backend: Server) -> Tempo:
    return Tempo(backend)


@pytest.fixture
def asked(tempo: Tempo) -> Iterator[Asked]:
    with answering(tempo.answer) as asked:
        yield asked


def looking(start: Start, asked: Asked, database: Path, backend: Server) -> Server:
    return start("--look-in", f"tempo+{asked.url}", database=database, **QUIET, **sending_to(backend))


def failing(server: Server) -> None:
    told, asked, trace_id = story(1)
    for body in (told, asked):
        assert server.post("/v1/traces", body)[0] == 200
    fail(server, trace_id)


def test_a_second_file_with_the_same_spans_sends_nothing_again(
    start: Start, backend: Server, asked: Asked, tmp_path: Path
) -> None:
    one, other = (looking(start, asked, tmp_path / f"{name}.db", backend) for name in ("one", "other"))
    failing(one)
    one.until(lambda: backend.metric("decoded_spans") >= 3)
    received = backend.metric("acknowledged_spans")
    failing(other)
    other.until(lambda: other.metric("inbox_bytes") == 0)
    time.sleep(5)
    assert backend.metric("acknowledged_spans") == received
    each_was_sent_once(backend, 1)


@pytest.mark.parametrize(
    ("silence", "counted"),
    [
        ((503, b"starting"), r"serve_failed_sends\S* [1-9]"),
        ((200, IN_PART), r"attribution_runs_total\S*error\S* [1-9]"),
    ],
)
def test_nothing_is_sent_until_the_backend_answers(
    start: Start, backend: Server, tempo: Tempo, asked: Asked, tmp_path: Path, silence: tuple[int, bytes], counted: str
) -> None:
    tempo.silence = silence
    server = looking(start, asked, tmp_path / "one.db", backend)
    failing(server)
    server.until(lambda: re.search(counted, server.get("/metrics")) is not None)
    assert backend.metric("acknowledged_spans") == 0
    tempo.silence = None
    server.until(lambda: backend.metric("acknowledged_spans") >= 3)
    each_was_sent_once(backend, 1)
