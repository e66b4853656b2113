"""Limits and checks of one OTLP request, in protobuf, JSON and gzip."""

from __future__ import annotations

import gzip
import json
import random
import re
import time

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from memtrace_otel.hosts import is_loopback
from memtrace_otel.otlp import decode_request, encode_request
from memtrace_otel.otlp.json import Json
from memtrace_otel.otlp.receiver import (
    BusyError,
    InFlightBytes,
    Limits,
    RequestError,
    Signal,
    TooLargeError,
    check_traces,
    gunzip,
    read_json,
)
from memtrace_otel.otlp.receiver.requests import is_allowed
from tests.otlp_json import request_to_json
from tests.unit.otlp.spans import nested_arrays, random_span, record

LIMITS = Limits(request_bytes=4 << 20)
_rng = random.Random(5)
SPANS = [random_span(_rng) for _ in range(20)]


def request() -> ExportTraceServiceRequest:
    return ExportTraceServiceRequest.FromString(encode_request(SPANS))


@pytest.mark.parametrize("host", ["127.0.0.1", "127.1.2.3", "::1", "[::1]", "localhost"])
def test_only_this_machine_reaches_a_loopback_host(host: str) -> None:
    assert is_loopback(host)


@pytest.mark.parametrize("host", ["0.0.0.0", "::", "", "10.0.0.1", "example.org", "localhost.example.org", "127.0.0"])
def test_other_machines_may_reach_any_other_host(host: str) -> None:
    assert not is_loopback(host)


def test_the_token_is_needed_as_bearer() -> None:
    assert is_allowed("", "")
    assert is_allowed("Bearer s3cret", "s3cret")
    assert is_allowed("bearer  s3cret ", "s3cret")
    for wrong in ("", "Bearer", "Bearer s3cre", "Basic s3cret", "s3cret", "Bearer é"):
        assert not is_allowed(wrong, "s3cret")


def test_bytes_in_flight_are_bounded_unless_a_request_is_alone() -> None:
    in_flight = InFlightBytes(10)
    with in_flight.request() as add:
        add(50)
        with pytest.raises(BusyError), in_flight.request() as other:
            other(1)
        add(-45)
        with in_flight.request() as other:
            other(5)
    with in_flight.request() as add:
        add(11)


def test_a_good_request_is_not_changed() -> None:
    body = encode_request(SPANS)
    checked = check_traces(body, LIMITS)
    assert (checked.body, checked.spans, checked.rejected, checked.reason) == (body, 20, 0, "")
    assert check_traces(b"", LIMITS).spans == 0


def test_only_the_spans_past_a_limit_are_taken_out() -> None:
    changed = request()
    spans = [span for group in changed.resource_spans for scope in group.scope_spans for span in scope.spans]
    for number in range(LIMITS.entries + 1):
        spans[0].attributes.add(key=str(number)).value.int_value = number
    spans[3].name = "x" * (LIMITS.span_bytes + 1)
    spans[5].span_id = b""
    checked = check_traces(changed.SerializeToString(), LIMITS)
    assert (checked.spans, checked.rejected) == (17, 3)
    assert "at most 2048" in checked.reason
    assert decode_request(checked.body) == [*SPANS[1:3], SPANS[4], *SPANS[6:]]


@pytest.mark.parametrize("body", [encode_request(SPANS), b"\x0a\x00" * 20, b"\x0a\x02\x12\x00" * 20])
def test_too_many_spans_or_groups_refuse_the_request(body: bytes) -> None:
    with pytest.raises(TooLargeError, match="more than 19 spans"):
        check_traces(body, Limits(request_bytes=4 << 20, spans=19))


def test_a_request_that_cannot_be_parsed_is_refused() -> None:
    deep = record(0x0A, record(0x12, record(0x12, record(0x4A, record(0x12, nested_arrays(60))))))
    named = request()
    named.resource_spans[0].scope_spans[0].spans[0].name = "broken name"
    for body in (
        deep,
        named.SerializeToString().replace(b"broken name", b"broken \xff\xfe\xfd\xfc"),
        encode_request(SPANS)[:-1],
    ):
        with pytest.raises(RequestError, match="cut off, not UTF-8, or nested too deeply"):
            check_traces(body, LIMITS)


def test_random_bytes_are_refused_or_taken_and_raise_no_other_error() -> None:
    rng = random.Random(9)
    body = encode_request(SPANS)
    for _ in range(300):
        broken = bytearray(body)
        for _ in range(rng.randrange(1, 8)):
            broken[rng.randrange(len(broken))] = rng.randrange(256)
        del broken[rng.randrange(len(broken)) if rng.random() < 0.3 else len(broken) :]
        try:
            checked = check_traces(bytes(broken), LIMITS)
        except RequestError:
            continue
        assert len(decode_request(checked.body)) == checked.spans


@pytest.mark.parametrize("size", [0, 1, 4 << 20])
def test_small_data_may_have_any_compression_ratio(size: int) -> None:
    assert gunzip(gzip.compress(bytes(size)), LIMITS) == bytes(size)


def test_a_gzip_bomb_is_not_inflated() -> None:
    with pytest.raises(TooLargeError, match="200 times"):
        gunzip(gzip.compress(bytes(1 << 28)), Limits(request_bytes=1 << 30))


GZIP = gzip.compress(b"a")


@pytest.mark.parametrize("damaged", [b"", b"\x1f\x8b", GZIP[:-1], GZIP + b"b", b"plain"])
def test_damaged_gzip_is_refused(damaged: bytes) -> None:
    with pytest.raises(RequestError, match="gzip"):
        gunzip(damaged, LIMITS)


def traces(*spans: object) -> bytes:
    document = {"resourceSpans": [{"scopeSpans": [{"spans": spans}]}]}
    return read_json(Signal.TRACES, json.dumps(document).encode(), LIMITS)


def deep(levels: int) -> Json:
    value: object = {"stringValue": "x"}
    for _ in range(levels):
        value = {"arrayValue": {"values": [value]}}
    return {"traceId": "a" * 32, "spanId": "b" * 16, "attributes": [{"key": "deep", "value": value}]}


def test_json_gives_the_same_spans_as_protobuf() -> None:
    body = json.dumps(request_to_json(encode_request(SPANS))).encode()
    assert decode_request(check_traces(read_json(Signal.TRACES, body, LIMITS), LIMITS).body) == SPANS


@pytest.mark.parametrize(
    ("span", "reason"),
    [
        (deep(60), "past 100 levels"),
        (deep(150), "past 100 levels"),
        (deep(250), "past 100 levels"),
        ({"name": 5}, "cannot read"),
        (5, "cannot read"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_json_without_a_protobuf_form_is_refused(span: object, reason: str) -> None:
    with pytest.raises(RequestError, match=reason):
        check_traces(traces({"name": "good"}, span), LIMITS)


def test_json_is_measured_before_it_is_converted() -> None:
    """Conversion of 4.8 MB of `{}` would take 20 seconds."""
    document = b'{"resourceSpans": [%s{}]}' % (b"{}," * 1_600_000)
    started = time.process_time()
    with pytest.raises(TooLargeError, match="more than 250000 JSON objects"):
        read_json(Signal.TRACES, document, Limits(20 << 20))
    assert time.process_time() - started < 5


def test_braces_in_a_text_are_no_json_objects() -> None:
    limits = Limits(4 << 20, json_objects=20)
    assert traces({"name": "{" * 100}) == read_json(
        Signal.TRACES, b'{"resourceSpans": [{"scopeSpans": [{"spans": [{"name": "%s"}]}]}]}' % (b"{" * 100), limits
    )


SECRET = "my secret Export.text"


@pytest.mark.parametrize(
    ("attribute", "place"),
    [
        ({"intValue": SECRET}, "resourceSpans[0].scopeSpans[0].spans[0].attributes[0].value.intValue"),
        ({"intValue": "secret"}, "value.intValue"),
        ({"intValue": {SECRET: SECRET}}, "resourceSpans.scopeSpans.spans.attributes.value.intValue"),
        ({"doubleValue": SECRET}, "value.doubleValue"),
        ({"boolValue": SECRET}, "value.boolValue"),
        ({"arrayValue": {"values": SECRET}}, "value.arrayValue"),
        ({"stringValue": SECRET, "boolValue": True}, "attributes[0].value"),
    ],
    ids=str,
)
def test_a_refusal_names_the_place_and_quotes_no_content(attribute: Json, place: str) -> None:
    span = {"traceId": "a" * 32, "spanId": "b" * 16, "attributes": [{"key": "k", "value": attribute}]}
    with pytest.raises(RequestError, match=rf"cannot read \S*{re.escape(place)}$") as refused:
        traces(span)
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize(
    ("signal", "wanted", "found"),
    [(Signal.TRACES, "resourceSpans", "resourceLogs"), (Signal.LOGS, "resourceLogs", "resourceSpans")],
)
def test_an_empty_document_is_a_request_and_one_of_another_signal_is_none(
    signal: Signal, wanted: str, found: str
) -> None:
    assert read_json(signal, b"{}", LIMITS) == b""
    with pytest.raises(RequestError, match=rf"no {wanted} \(found: {found}\)"):
        read_json(signal, json.dumps({found: []}).encode(), LIMITS)
