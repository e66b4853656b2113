"""OTLP/JSON as protobuf: what cannot be read of it leaves the rest."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest

from memtrace_otel.otlp import decode_request, encode_request
from memtrace_otel.otlp.json import Json, json_to_request
from memtrace_otel.otlp.receiver import Limits, RequestError, Signal, check_logs, check_traces, conversion
from memtrace_otel.otlp.receiver.conversion import from_json
from memtrace_otel.testing import contract_span
from tests.otlp_json import request_to_json

LIMITS = Limits(4 << 20)
SPANS = [contract_span(1, number) for number in range(1, 4)]
GOOD = request_to_json(encode_request(SPANS))["resourceSpans"]


def deep(levels: int) -> Json:
    value: object = {"stringValue": "x"}
    for _ in range(levels):
        value = {"arrayValue": {"values": [value]}}
    return {"traceId": "a" * 32, "spanId": "b" * 16, "attributes": [{"key": "deep", "value": value}]}


def traces(*spans: object) -> bytes:
    document = {"resourceSpans": [*GOOD, {"scopeSpans": [{"spans": spans}]}]}  # type: ignore[misc]
    return from_json(Signal.TRACES, json.dumps(document).encode())


@pytest.mark.parametrize(
    "bad", [deep(60), deep(150), deep(250), {"traceId": "zz"}, {"name": 5}, 5], ids=lambda bad: str(bad)[:20]
)
def test_a_span_that_has_no_protobuf_form_is_refused_alone(bad: object) -> None:
    checked = check_traces(traces(bad, bad), LIMITS)
    assert decode_request(checked.body) == SPANS
    assert (checked.spans, checked.rejected) == (3, 2)
    assert "past 100 levels" in checked.reason


@pytest.mark.parametrize("bad", [{0}, {499}, {998}, {499, 500}, {0, 333, 334, 998}, set(range(0, 999, 10))], ids=len)
def test_each_unreadable_span_is_found_and_no_other_one(bad: set[int]) -> None:
    spans = [{"traceId": "a" * 32, "spanId": f"{n + 1:016x}", "name": 5 if n in bad else "x"} for n in range(999)]
    checked = check_traces(traces(*spans), LIMITS)
    assert checked.rejected == len(bad)
    kept = [int(span.span_id, 16) - 1 for span in decode_request(checked.body)[len(SPANS) :]]
    assert kept == sorted(set(range(999)) - bad)


@pytest.mark.parametrize("bad", [0, 499, 998])
def test_to_find_one_unreadable_span_each_is_converted_twice(bad: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Conversion takes long: once to find it, once without it, besides the first attempt."""
    converted: list[int] = []

    def convert(document: Json) -> bytes:
        holders: Any = document["resourceSpans"]
        converted.append(sum(len(group["spans"]) for holder in holders for group in holder["scopeSpans"]))
        return json_to_request(document)

    monkeypatch.setattr(conversion, "_CONVERT", {Signal.TRACES: convert})
    traces(*({"name": 5 if n == bad else "x"} for n in range(999)))
    assert sum(converted) < 4_000
    assert len(converted) < 100


@pytest.mark.parametrize(
    ("resource_spans", "reason"),
    [
        ([{"scopeSpans": [{"spans": [deep(250)]}]}], "nested too deeply, past 100 levels"),
        ([{"scopeSpans": [{"spans": [deep(60)]}]}], "nested too deeply, past 100 levels"),
        ([{"scopeSpans": [{"spans": [{"traceId": "zz"}]}]}], "'zz' is not 32 hex digits"),
        ([{"resource": deep(250), "scopeSpans": [{"spans": [{}]}]}], "nested too deeply, past 100 levels"),
        ([{"scopeSpans": [{"spans": [*[{"name": 5}] * 101, {}]}]}], "name"),
        ([{"scopeSpans": [{"spans": [*[{}] * 20_000, {"name": 5}]}]}], "name"),
        ([{"scopeSpans": 5}, 5], "not an array of objects"),
    ],
)
def test_where_nothing_or_much_is_unreadable_the_request_is_refused_by_what_is_wrong(
    resource_spans: object, reason: str
) -> None:
    with pytest.raises(RequestError, match=reason):
        from_json(Signal.TRACES, json.dumps({"resourceSpans": resource_spans}).encode())


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
    document = {"resourceSpans": [{"scopeSpans": [{"spans": [span]}]}]}
    with pytest.raises(RequestError, match=rf"cannot read \S*{re.escape(place)}$") as refused:
        from_json(Signal.TRACES, json.dumps(document).encode())
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("signal", list(Signal))
def test_an_empty_request_is_one(signal: Signal) -> None:
    assert from_json(signal, b"{}") == b""


@pytest.mark.parametrize(
    ("signal", "wanted", "found"),
    [(Signal.TRACES, "resourceSpans", "resourceLogs"), (Signal.LOGS, "resourceLogs", "resourceSpans")],
)
def test_another_document_is_not(signal: Signal, wanted: str, found: str) -> None:
    with pytest.raises(RequestError, match=rf"no {wanted} \(found: {found}\)"):
        from_json(signal, json.dumps({found: []}).encode())


def test_a_log_record_that_is_nested_too_deeply_is_refused_alone() -> None:
    judged = {"traceId": "a" * 32, "spanId": "b" * 16, "eventName": "gen_ai.evaluation.result"}
    records = [{**judged, "attributes": deep(200)["attributes"]}, judged]
    document = {"resource_logs": [{"scope_logs": [{"log_records": records}]}]}
    checked = check_logs(from_json(Signal.LOGS, json.dumps(document).encode()), LIMITS)
    assert (checked.spans, checked.rejected) == (1, 1)
