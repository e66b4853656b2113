"""The fuzzed functions, and what must hold for every input: a named error, or a correct result."""

from __future__ import annotations

import gzip
import json
from collections.abc import Callable
from pathlib import Path
from tempfile import NamedTemporaryFile

from memtrace_otel.otlp import decode_request, encode_request
from memtrace_otel.otlp.decode import decode_span, parse_request
from memtrace_otel.otlp.files import InputError, OtlpBody, read_file
from memtrace_otel.otlp.json import json_to_request
from memtrace_otel.otlp.receiver import Limits, RequestError, Signal, check_logs, check_traces, gunzip, read_json
from memtrace_otel.otlp.receiver.http import read_feedback
from memtrace_otel.otlp.values import attributes, decode_pairs
from memtrace_otel.sources.ingest import decode_rows
from tests.otlp_json import request_to_json

LIMITS = Limits(request_bytes=1 << 18, span_bytes=1 << 14, spans=500, entries=64, ratio=20)
Target = Callable[[bytes], None]


def traces(body: bytes) -> None:
    """A protobuf trace request is refused by name, or what is acknowledged of it can be read, kept and written."""
    try:
        checked = check_traces(body, LIMITS)
    except RequestError:
        return
    assert checked.spans <= LIMITS.spans
    spans = decode_request(checked.body)
    assert len(spans) == checked.spans
    assert bool(checked.reason) == bool(checked.rejected)

    rows, rejected = decode_rows(checked.body)
    assert rejected == []
    for row, span in zip(rows, spans, strict=True):
        assert repr(row.span) == repr(span)

    written = encode_request(spans)
    again = decode_request(written)
    assert repr(again) == repr(spans)  # equal also where a number is NaN
    assert encode_request(again) == written

    if checked.spans:
        document = json.loads(json.dumps(request_to_json(checked.body)))
        assert repr(decode_request(json_to_request(document))) == repr(spans)


def json_traces(text: bytes) -> None:
    """OTLP/JSON is refused by name, or becomes a protobuf request of which the same holds."""
    try:
        body = read_json(Signal.TRACES, text, LIMITS)
    except RequestError:
        return
    traces(body)


def logs(body: bytes) -> None:
    """Evaluations become spans; other records are counted."""
    try:
        checked = check_logs(body, LIMITS)
    except RequestError:
        return
    judges = decode_request(checked.body)
    assert len(judges) == checked.spans
    assert all(judge.kind == "judge" and judge.parent_id for judge in judges)


def json_logs(text: bytes) -> None:
    try:
        body = read_json(Signal.LOGS, text, LIMITS)
    except RequestError:
        return
    logs(body)


def zipped(packed: bytes) -> None:
    """gzip is refused by name, or unpacked within the limits as the standard library does."""
    try:
        body = gunzip(packed, LIMITS)
    except RequestError:
        return
    assert len(body) <= LIMITS.request_bytes
    assert body == gzip.decompress(packed)
    traces(body)


def feedback(text: bytes) -> None:
    try:
        body = read_feedback(text)
    except RequestError:
        return
    assert check_traces(body, Limits.from_settings()).spans == 1
    traces_of_any_size(body)


def traces_of_any_size(body: bytes) -> None:
    for group in parse_request(body):
        for span in group.spans:
            decode_span(span, attributes(decode_pairs(group.resource.attributes)), group.scope.name)


def files(data: bytes) -> None:
    """A file of any kind is refused by name, or its requests can be decoded."""
    with NamedTemporaryFile(suffix=".otlp") as file:
        Path(file.name).write_bytes(data)
        try:
            items = list(read_file(file.name))
        except InputError:
            return
    for item in items:
        if isinstance(item, OtlpBody):
            decode_request(item.body)


TARGETS: dict[str, Target] = {
    "traces": traces,
    "json_traces": json_traces,
    "logs": logs,
    "json_logs": json_logs,
    "zipped": zipped,
    "feedback": feedback,
    "files": files,
}
