"""Decoding spans of other programs, valid and malformed."""

from __future__ import annotations

import random
from typing import Any

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from memtrace_otel import semconv
from memtrace_otel.model import OperationSpan, Variable
from memtrace_otel.otlp import DecodeError, decode_request, encode_request
from memtrace_otel.otlp.json import json_to_request
from tests.unit.otlp.spans import random_span


def decoded(attributes: dict[str, Any], **fields: Any) -> OperationSpan:
    """Return the decoded span with these attributes, given as OTLP/JSON values."""
    span = {
        "traceId": "a" * 32,
        "spanId": "b" * 16,
        "attributes": [{"key": key, "value": value} for key, value in attributes.items()],
        **fields,
    }
    (found,) = decode_request(json_to_request({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}))
    return found


def texts(*items: str) -> dict[str, Any]:
    return {"arrayValue": {"values": [{"stringValue": item} for item in items]}}


def test_arrays_become_variables_and_leave_the_attributes() -> None:
    span = decoded(
        {
            "memtrace.op.kind": {"stringValue": "retrieve"},
            "memtrace.inputs": texts("query:1", "memory:7"),
            "memtrace.inputs.roles": texts("query", "hit"),
            "memtrace.inputs.origins": texts("", "x"),
            "memtrace.inputs.scores": {"arrayValue": {"values": [{"doubleValue": "NaN"}, {"intValue": 1}]}},
            "memtrace.outputs": texts("context:1"),
            "memtrace.outputs.sizes": {"arrayValue": {"values": [{"intValue": "12"}]}},
            "memtrace.flow": texts("1>0"),
            "own": {"stringValue": "kept"},
        }
    )
    assert span.inputs == (Variable("query:1", "query"), Variable("memory:7", "hit", "x", score=1.0))
    assert span.outputs == (Variable("context:1", size=12),)
    assert span.flow == ((1, 0),)
    assert span.attributes == {"own": "kept"}
    assert span.incomplete == ()


def test_an_integer_past_64_bits_is_a_double() -> None:
    """The SDK of JavaScript writes `Number.isInteger(1e300)` that way."""
    span = decoded({"large": {"arrayValue": {"values": [{"intValue": 1e300}, {"intValue": -(2**63)}]}}})
    assert span.attributes == {"large": [1e300, -(2.0**63)]}
    with pytest.raises(DecodeError, match="not a valid OTLP"):
        decoded({"large": {"intValue": 10**400}})


def test_a_lone_surrogate_becomes_a_question_mark() -> None:
    assert decoded({"\ud800": {"stringValue": "a\udfffb"}}, name="\ud83d").attributes == {"?": "a?b"}
    assert decoded({}, status={"code": "\ud800"}).status == "unset"


@pytest.mark.parametrize(
    "attributes",
    [
        {"memtrace.inputs.roles": texts("hit")},
        {"memtrace.inputs.roles": texts("hit", "hit", "hit")},
        {"memtrace.inputs.roles": {"stringValue": "hit"}},
        {"memtrace.inputs.origins": {"arrayValue": {"values": [{"stringValue": ""}, {"intValue": 1}]}}},
        {"memtrace.inputs.scores": texts("high", "low")},
        {"memtrace.inputs.scores": {"arrayValue": {"values": [{"boolValue": True}, {"boolValue": True}]}}},
        {"memtrace.inputs.contents": {"kvlistValue": {"values": []}}},
        {"memtrace.flow": texts("0>9")},
        {"memtrace.flow": texts("zero>one")},
        {"memtrace.seq": {"stringValue": "1"}},
        {"memtrace.op.kind": {"intValue": 4}},
        {"memtrace.part": {"boolValue": True}},
        {"memtrace.evidence": {"stringValue": "message:1"}},
    ],
)
def test_malformed_fields_become_defaults_and_are_marked(attributes: dict[str, Any]) -> None:
    span = decoded({"memtrace.inputs": texts("memory:1", "memory:2"), **attributes})
    assert [variable.ref for variable in span.inputs] == ["memory:1", "memory:2"]
    assert [variable.score for variable in span.inputs] == [None, None]
    assert (span.kind, span.seq, span.part, span.evidence, span.flow) == ("", None, 0, (), None)
    assert span.incomplete == ("malformed",)


@pytest.mark.parametrize(("given", "read"), [([], ()), (["0>0"], ((0, 0),)), (["no>pair"], None)])
def test_an_empty_flow_means_that_no_input_fed_an_output(given: list[str], read: object) -> None:
    refs = {"memtrace.inputs": texts("message:1"), "memtrace.outputs": texts("fact:1")}
    assert decoded({**refs, "memtrace.flow": texts(*given)}).flow == read
    assert decoded(refs).flow is None


def test_the_flow_of_a_continuation_counts_over_all_parts() -> None:
    flow = {"memtrace.outputs": texts("fact:9"), "memtrace.flow": texts("0>0", "7>9")}
    span = decoded({"memtrace.part": {"intValue": "1"}, **flow})
    assert span.flow == ((0, 0), (7, 9))
    assert not span.incomplete


def test_a_ref_of_another_type_leaves_the_other_variables_and_the_flow_in_place() -> None:
    refs = {"arrayValue": {"values": [{"intValue": 1}, {"stringValue": "memory:2"}]}}
    span = decoded({"memtrace.inputs": refs, "memtrace.outputs": texts("fact:1"), "memtrace.flow": texts("1>0")})
    assert span.inputs == (Variable("memory:2"),)
    assert span.flow == ((0, 0),)
    assert span.incomplete == ("malformed",)


def test_a_standard_operation_name_gives_the_kind() -> None:
    assert decoded({"gen_ai.operation.name": {"stringValue": "search_memory"}}).kind == "retrieve"
    assert decoded({"gen_ai.operation.name": {"stringValue": "embeddings"}}).kind == ""
    both = {"gen_ai.operation.name": {"stringValue": "chat"}, "memtrace.op.kind": {"stringValue": "judge"}}
    assert decoded(both).kind == "judge"


def test_values_that_no_attribute_can_hold_become_text_or_are_left_out() -> None:
    nested: dict[str, Any] = {"stringValue": "deep"}
    for _ in range(45):  # protobuf takes 100 messages in each other
        nested = {"arrayValue": {"values": [nested]}}
    span = decoded(
        {
            "map": {"kvlistValue": {"values": [{"key": "a", "value": {"intValue": "1"}}]}},
            "bytes": {"bytesValue": "AAE="},
            "mixed": {"arrayValue": {"values": [{"intValue": "1"}, {"stringValue": "x"}]}},
            "numbers": {"arrayValue": {"values": [{"intValue": "1"}, {"doubleValue": 2.5}]}},
            "none": {},
            "nested": nested,
        }
    )
    assert {key: span.attributes[key] for key in ("map", "bytes", "mixed", "numbers")} == {
        "map": '{"a":1}',
        "bytes": "AAE=",
        "mixed": '[1,"x"]',
        "numbers": [1.0, 2.5],
    }
    assert "none" not in span.attributes
    assert span.attributes["nested"] == "[" * 45 + '"deep"' + "]" * 45


def test_dropped_attributes_make_the_span_incomplete() -> None:
    assert decoded({}, droppedAttributesCount=3).incomplete == (semconv.Incomplete.DROPPED,)


def test_bad_parent_and_link_ids_are_left_out() -> None:
    span = decoded({}, parentSpanId="0" * 16, links=[{"spanId": "c" * 16}])
    assert (span.parent_id, span.links) == ("", ())


@pytest.mark.parametrize(
    ("trace_id", "span_id", "reason"),
    [
        (b"", b"b" * 8, "trace id of 0 bytes"),
        (bytes(16), b"b" * 8, "all-zero trace id"),
        (b"a" * 16, b"b" * 16, "span id of 16 bytes"),
        (b"a" * 16, bytes(8), "all-zero span id"),
    ],
)
def test_a_span_without_valid_ids_is_refused(trace_id: bytes, span_id: bytes, reason: str) -> None:
    request = ExportTraceServiceRequest()
    request.resource_spans.add().scope_spans.add().spans.add(trace_id=trace_id, span_id=span_id, name="x")
    with pytest.raises(DecodeError, match=reason):
        decode_request(request.SerializeToString())


def test_other_protobuf_messages_are_refused() -> None:
    with pytest.raises(DecodeError, match="holds no resourceSpans"):
        decode_request(b"\x10\x01")


def test_a_truncated_request_is_refused_at_every_length() -> None:
    body = encode_request([random_span(random.Random(1))])
    for length in range(1, len(body)):
        with pytest.raises(DecodeError):
            decode_request(body[:length])


def test_damaged_requests_give_spans_or_a_decode_error() -> None:
    rng = random.Random(2)
    body = encode_request([random_span(rng) for _ in range(3)])
    for _ in range(500):
        damaged = bytearray(body)
        for _ in range(1 + rng.randrange(4)):
            damaged[rng.randrange(len(damaged))] = rng.randrange(256)
        try:
            spans = decode_request(bytes(damaged))
        except DecodeError:
            continue
        assert all(isinstance(span, OperationSpan) for span in spans)


@pytest.mark.parametrize("said", ['["memory:1", "memory:\\u00e9"]', '["memory:1","memory:é"]'])
def test_arrays_that_a_backend_stored_as_text_are_read(said: str) -> None:
    attributes = [
        {"key": "memtrace.op.kind", "value": {"stringValue": "retrieve"}},
        {"key": "memtrace.inputs", "value": {"stringValue": said}},
        {"key": "memtrace.inputs.scores", "value": {"stringValue": "[1,0.5]"}},
        {"key": "memtrace.inputs.digests", "value": {"stringValue": ""}},  # one with a NaN becomes empty
    ]
    span = {"traceId": "1" * 32, "spanId": "1" * 16, "attributes": attributes}
    (read,) = decode_request(json_to_request({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}))
    assert [(v.ref, v.score) for v in read.inputs] == [("memory:1", 1.0), ("memory:é", 0.5)]
    assert read.incomplete == ()


@pytest.mark.parametrize("said", ["[", "memory:1", "[" * 100_000, '{"a": 1}'])
def test_text_in_place_of_an_array_is_malformed(said: str) -> None:
    span = {
        "traceId": "1" * 32,
        "spanId": "1" * 16,
        "attributes": [{"key": "memtrace.inputs", "value": {"stringValue": said}}],
    }
    (read,) = decode_request(json_to_request({"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}))
    assert (read.inputs, read.incomplete) == ((), ("malformed",))
