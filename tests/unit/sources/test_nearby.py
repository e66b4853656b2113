"""Backends on a receiver's host, at their usual ports."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from memtrace_otel.model import OperationSpan
from memtrace_otel.otlp import encode_request
from memtrace_otel.sources import NearbySources, nearby
from memtrace_otel.sources.jaeger import JaegerSource
from memtrace_otel.sources.remote import RemoteSource
from memtrace_otel.sources.tempo import TempoSource
from tests.contract.planted import Fault, System, record
from tests.contract.story import STORY
from tests.otlp_json import request_to_json
from tests.unit.sources.backend_api import Asked, Reply, answering

RECEIVER = "http://127.0.0.1:4317"


@pytest.fixture
def spans() -> list[OperationSpan]:
    told = record(System.ADDITIVE, Fault.GARBLED, STORY[0], STORY[3]).spans
    return [span for span in told if span.trace_id == told[0].trace_id]


@contextmanager
def jaeger(monkeypatch: pytest.MonkeyPatch, reply: Reply) -> Iterator[Asked]:
    """A Jaeger at its usual port that always answers so; nothing listens at Tempo's."""
    with answering(lambda path, query: reply) as asked:
        kinds: dict[str, tuple[type[RemoteSource], int, str]] = {
            "jaeger": (JaegerSource, asked.port, "x-tenant"),
            "tempo": (TempoSource, 1, "x-scope-orgid"),
        }
        monkeypatch.setattr(nearby, "KINDS", kinds)
        yield asked


@pytest.mark.parametrize("endpoint", [RECEIVER, "127.0.0.1:4317"])
def test_what_the_backend_beside_the_receiver_has_is_read(
    endpoint: str, spans: list[OperationSpan], monkeypatch: pytest.MonkeyPatch
) -> None:
    document = b'{"result": ' + json.dumps(request_to_json(encode_request(spans))).encode() + b"}"
    monkeypatch.setenv("MEMTRACE_SOURCE_TOKEN", "of-another-backend")
    with jaeger(monkeypatch, (200, document)) as asked, closing(NearbySources(endpoint)) as sources:
        assert sources.shows == ""
        assert [span.origin for span in sources.whole(spans[0].trace_id)] == [span.origin for span in spans]
        assert sources.shows == f"jaeger+{asked.url}"
    assert "of-another-backend" not in str(asked.requests)


def test_a_trace_that_it_does_not_have_is_asked_for_again(
    spans: list[OperationSpan], monkeypatch: pytest.MonkeyPatch
) -> None:
    with jaeger(monkeypatch, (404, b"{}")) as asked, closing(NearbySources(RECEIVER)) as sources:
        assert [sources.whole(spans[0].trace_id) for _ in range(2)] == [[], []]
    assert (len(asked.requests), sources.shows) == (2, "")


@pytest.mark.parametrize("reply", [(401, b"who?"), (503, b"busy"), (200, b"<html>another application</html>")])
def test_one_that_cannot_be_read_is_asked_no_more(
    reply: Reply, spans: list[OperationSpan], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with jaeger(monkeypatch, reply) as asked, closing(NearbySources(RECEIVER)) as sources:
        sources.whole(spans[0].trace_id)
        once = len(asked.requests)
        assert [sources.whole(spans[0].trace_id) for _ in range(3)] == [[], [], []]
    assert len(asked.requests) == once > 0
    assert f"jaeger+{asked.url} is not looked into: " in caplog.text


@pytest.mark.parametrize("endpoint", ["http://nobody.invalid:4317", f"http://{'x' * 70}.invalid", "http://[::1"])
def test_a_host_that_is_none_has_none(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nearby, "KINDS", {"jaeger": (JaegerSource, 1, "x-tenant")})
    assert NearbySources(endpoint).whole("f" * 32) == []
