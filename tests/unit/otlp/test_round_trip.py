"""Spans are equal after encoding and decoding, in protobuf and OTLP/JSON."""

from __future__ import annotations

import json
import random

import pytest

from memtrace_otel.model import OperationSpan, Variable
from memtrace_otel.otlp import decode_request, encode_request
from memtrace_otel.otlp.json import json_to_request
from tests.otlp_json import request_to_json
from tests.unit.otlp.spans import random_span


@pytest.mark.parametrize("seed", range(40))
def test_decode_is_the_inverse_of_encode(seed: int) -> None:
    rng = random.Random(seed)
    spans = [random_span(rng) for _ in range(rng.randrange(12))]
    assert decode_request(encode_request(spans)) == spans


@pytest.mark.parametrize("seed", range(40))
def test_json_holds_the_same_spans(seed: int) -> None:
    rng = random.Random(1000 + seed)
    spans = [random_span(rng) for _ in range(1 + rng.randrange(8))]
    text = json.dumps(request_to_json(encode_request(spans)))
    assert decode_request(json_to_request(json.loads(text))) == spans


def test_json_ids_are_hex_and_times_are_strings() -> None:
    span = OperationSpan("a" * 32, "b" * 16, parent_id="c" * 16, start=2**62, end=2**62)
    found = request_to_json(encode_request([span]))
    written = found["resourceSpans"][0]["scopeSpans"][0]["spans"][0]  # type: ignore[index]
    assert (written["traceId"], written["spanId"], written["parentSpanId"]) == ("a" * 32, "b" * 16, "c" * 16)
    assert written["startTimeUnixNano"] == str(2**62)


def test_json_takes_snake_case_base64_ids_numbers_and_unknown_fields() -> None:
    span = {
        "trace_id": "qqqqqqqqqqqqqqqqqqqqqg==",
        "spanId": "BBBBBBBBBBBBBBBB",
        "startTimeUnixNano": 5,
        "end_time_unix_nano": "6",
        "status": {"code": "STATUS_CODE_ERROR"},
        "attributes": [{"key": "n", "value": {"intValue": 3}}],
        "later": {"unknown": True},
    }
    body = json_to_request({"resource_spans": [{"scope_spans": [{"spans": [span]}]}]})
    (found,) = decode_request(body)
    assert (found.trace_id, found.span_id) == ("a" * 31 + "a", "b" * 16)
    assert (found.start, found.end, found.status, found.attributes) == (5, 6, "error", {"n": 3})


def test_values_that_protobuf_cannot_hold_are_replaced() -> None:
    span = OperationSpan("a" * 32, "b" * 16, name="\ud800", attributes={"big": 2**70, "cut": ["\udfff"]})
    (found,) = decode_request(encode_request([span]))
    assert found.name == "?"
    assert found.attributes == {"big": str(2**70), "cut": ["?"]}


def test_a_span_with_300_inputs_and_a_content_of_1_mib_round_trips() -> None:
    inputs = tuple(Variable(f"memory:{n}", score=float(n)) for n in range(300))
    span = OperationSpan("a" * 32, "b" * 16, inputs=inputs, outputs=(Variable("context:1", content="x" * (1 << 20)),))
    assert decode_request(encode_request([span])) == [span]
