"""What one request may be."""

from __future__ import annotations

import gzip
import random
import subprocess
import sys
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from memtrace_otel.otlp import decode_request, encode_request
from memtrace_otel.otlp.receiver import Limits, RequestError, TooLargeError, check_traces
from memtrace_otel.otlp.receiver.limits import gunzip
from memtrace_otel.otlp.receiver.wire import record
from tests.unit.otlp.spans import random_span

LIMITS = Limits(request_bytes=4 << 20)
_rng = random.Random(5)
SPANS = [random_span(_rng) for _ in range(20)]


def test_a_good_request_stays_as_it_is() -> None:
    body = encode_request(SPANS)
    checked = check_traces(body, LIMITS)
    assert (checked.body, checked.spans, checked.rejected, checked.reason) == (body, 20, 0, "")


def test_an_empty_request_is_good() -> None:
    assert check_traces(b"", LIMITS).spans == 0


def test_only_refused_spans_go() -> None:
    request = ExportTraceServiceRequest.FromString(encode_request(SPANS))
    (first, *_) = [span for group in request.resource_spans for scope in group.scope_spans for span in scope.spans]
    for number in range(LIMITS.entries + 1):
        first.attributes.add(key=str(number)).value.int_value = number
    checked = check_traces(request.SerializeToString(), LIMITS)
    assert (checked.spans, checked.rejected) == (19, 1)
    assert "at most 2048" in checked.reason
    assert decode_request(checked.body) == SPANS[1:]


def test_a_span_that_is_too_large_is_refused() -> None:
    request = ExportTraceServiceRequest.FromString(encode_request(SPANS))
    request.resource_spans[0].scope_spans[0].spans[0].name = "x" * (LIMITS.span_bytes + 1)
    checked = check_traces(request.SerializeToString(), LIMITS)
    assert (checked.spans, checked.rejected) == (19, 1)
    assert "bytes" in checked.reason
    assert "xxx" not in checked.reason


def test_too_many_spans_are_refused_as_a_whole() -> None:
    with pytest.raises(TooLargeError, match="more than 19 spans"):
        check_traces(encode_request(SPANS), Limits(request_bytes=4 << 20, spans=19))


def test_deep_values_are_refused() -> None:
    value = b"\x0a\x01x"  # a string in an AnyValue
    for _ in range(200):
        value = field(b"\x2a", field(b"\x0a", value))  # AnyValue.array_value, ArrayValue.values
    span = field(b"\x4a", field(b"\x12", value))  # Span.attributes, KeyValue.value
    body = field(b"\x0a", field(b"\x12", field(b"\x12", span)))
    with pytest.raises(RequestError, match="nested too deeply"):
        check_traces(body, LIMITS)


def test_a_span_that_cannot_be_read_leaves_the_others() -> None:
    """Text that is no UTF-8, which the SDKs of some languages send."""
    request = ExportTraceServiceRequest.FromString(encode_request(SPANS))
    request.resource_spans[0].scope_spans[0].spans[0].name = "broken name"
    checked = check_traces(request.SerializeToString().replace(b"broken name", b"broken \xff\xfe\xfd\xfc"), LIMITS)
    assert (checked.spans, checked.rejected) == (19, 1)
    assert "no valid protobuf" in checked.reason
    assert decode_request(checked.body) == SPANS[1:]


@pytest.mark.parametrize("tag", [b"\x2a", b"\x32"])
def test_tiny_parts_do_not_fill_the_memory(tmp_path: Path, tag: bytes) -> None:
    """Arrays, or maps, of empty values: as one message 24 times their size."""
    values = field(b"\x4a", field(b"\x12", field(tag, b"\x0a\x00" * 250_000)))
    body = field(b"\x0a", field(b"\x12", b"".join(field(b"\x12", values) for _ in range(40))))
    (tmp_path / "body").write_bytes(body)
    done = subprocess.run(
        [sys.executable, "-c", _GROWTH, tmp_path / "body"], capture_output=True, text=True, check=True
    )
    assert int(done.stdout) < 100 << 20


_GROWTH = """
import resource, sys
from pathlib import Path
from memtrace_otel.otlp.receiver import Limits, check_traces
body = Path(sys.argv[1]).read_bytes()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
check_traces(body, Limits(request_bytes=40 << 20))
print((resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10)
"""


def test_tiny_groups_are_not_built() -> None:
    with pytest.raises(TooLargeError, match="groups"):
        check_traces(b"\x0a\x00" * (8 << 20), Limits(request_bytes=20 << 20))


def field(tag: bytes, body: bytes) -> bytes:
    return record(tag[0], body)


@pytest.mark.parametrize("size", [0, 1, 4 << 20])
def test_small_data_may_have_any_ratio(size: int) -> None:
    assert gunzip(gzip.compress(bytes(size)), LIMITS) == bytes(size)


def test_a_bomb_is_not_unpacked() -> None:
    with pytest.raises(TooLargeError, match="200 times"):
        gunzip(gzip.compress(bytes(1 << 28)), Limits(request_bytes=1 << 30))


GZIP = gzip.compress(b"a")


@pytest.mark.parametrize("damage", [b"", b"\x1f\x8b", GZIP[:-1], GZIP + b"b", b"plain"])
def test_damaged_gzip_is_named(damage: bytes) -> None:
    with pytest.raises(RequestError, match="gzip"):
        gunzip(damage, LIMITS)


def test_random_bytes_are_refused_or_taken_but_never_raise_another_error() -> None:
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
