"""Every limit on one request, over HTTP and gRPC."""

from __future__ import annotations

import grpc
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import (
    ExportTraceServiceRequest,
    ExportTraceServiceResponse,
)
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from memtrace_otel.sources import SqliteStore
from tests.integration.serve.conftest import Start
from tests.integration.serve.test_server import call
from tests.unit.otlp.spans import nested_arrays, record


def request(*spans: Span) -> bytes:
    message = ExportTraceServiceRequest()
    message.resource_spans.add().scope_spans.add().spans.extend(spans)
    return message.SerializeToString()


def span(number: int, name: str = "") -> Span:
    return Span(trace_id=b"t" * 16, span_id=number.to_bytes(8, "big"), name=name)


def with_entries(kind: str, count: int) -> Span:
    full = span(1)
    for _ in range(count):
        getattr(full, kind).add()
    return full


def with_entries_within(kind: str, count: int) -> Span:
    holding = span(1)
    part = getattr(holding, kind).add()
    for _ in range(count):
        part.attributes.add()
    return holding


def deep(levels: int) -> Span:
    """Return a span with an attribute whose value is nested in so many arrays."""
    attribute = record(0x0A, b"deep") + record(0x12, nested_arrays(levels))
    return Span.FromString(span(1).SerializeToString() + record(0x4A, attribute))


def too_deep() -> bytes:
    broken = span(1).SerializeToString() + record(0x4A, record(0x12, nested_arrays(60)))
    return record(0x0A, record(0x12, record(0x12, broken)))


@pytest.mark.parametrize(
    ("body", "status", "reason"),
    [
        (request(*map(span, range(1, 20_002))), 413, "more than 20000 spans"),
        (record(0x0A, b"") * 20_001, 413, "more than 20000 spans"),
        (too_deep(), 400, "nested too deeply"),
    ],
    ids=["spans", "groups", "nesting"],
)
def test_a_request_past_a_limit_is_refused(start: Start, body: bytes, status: int, reason: str) -> None:
    server = start()
    found, reply, _ = server.post("/v1/traces", body)
    assert found == status
    assert reason in reply.decode()
    with pytest.raises(grpc.RpcError) as caught:
        call(server, body)
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT  # type: ignore[attr-defined]
    assert reason in caught.value.details()  # type: ignore[attr-defined]
    assert server.span_ids() == set()


@pytest.mark.parametrize(
    ("bad", "reason"),
    [
        (with_entries("attributes", 2_049), "at most 2048"),
        (with_entries("events", 2_049), "at most 2048"),
        (with_entries("links", 2_049), "at most 2048"),
        (with_entries_within("events", 2_049), "2049 attributes"),
        (with_entries_within("links", 2_049), "2049 attributes"),
        (span(1, "x" * (1 << 20)), "at most 1048576"),
        (Span(trace_id=b"t" * 16, span_id=bytes(8)), "all-zero span id"),
    ],
    ids=["attributes", "events", "links", "attributes of an event", "attributes of a link", "bytes", "id"],
)
def test_a_span_past_a_limit_is_refused_alone(start: Start, bad: Span, reason: str) -> None:
    server = start()
    body = request(span(7), bad, span(8))
    for reply in (server.post("/v1/traces", body)[1], call(server, body)):
        part = ExportTraceServiceResponse.FromString(reply).partial_success
        assert part.rejected_spans == 1
        assert reason in part.error_message
    assert server.span_ids() == {f"{number:016x}" for number in (7, 8)}


def test_the_deepest_value_is_kept_and_what_is_at_a_limit_is_taken(start: Start) -> None:
    server = start()
    at_limits = request(with_entries("attributes", 2_048), *map(span, range(2, 20_001)))
    assert call(server, at_limits) == b""
    assert server.post("/v1/traces", request(deep(46)).replace(b"t" * 16, b"d" * 16))[0] == 200
    server.until(lambda: server.metric("inbox_bytes") == 0, 60)
    assert server.metric("quarantined_requests") == 0
    assert server.metric("decoded_spans") == 20_001
    assert server.terminate() == 0
    with SqliteStore.open(server.database) as store:
        (kept,) = store.trace((b"d" * 16).hex())
    assert kept.attributes["deep"] == "[" * 46 + '"x"' + "]" * 46
