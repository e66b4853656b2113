"""Our encoder of SDK spans writes the bytes that the SDK's writes."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from typing import Any

import pytest
from opentelemetry import trace
from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import Link, SpanContext, SpanKind, Status, StatusCode, TraceFlags, TraceState

from memtrace_otel.otlp import sdk
from memtrace_otel.otlp.sdk import encode_sdk_spans

TEXTS = ["", "a", "käse \U0001f9c0", "x" * 127, "x" * 128, "y" * 20_000, "\x00"]
NUMBERS = [0, 1, -1, 127, 128, 2**31, 2**63 - 1, -(2**63)]
FLOATS = [0.0, -0.0, 1.5, math.inf, math.nan]


def random_value(random: random.Random) -> Any:
    kinds: list[list[Any]] = [TEXTS, NUMBERS, FLOATS, [True, False]]
    kind = random.choice(kinds)
    return random.choice(kind) if random.random() < 0.6 else [random.choice(kind) for _ in range(random.randrange(4))]


def random_attributes(random: random.Random) -> dict[str, Any]:
    return {random.choice(["a", "ключ", "k" * 200]) + str(n): random_value(random) for n in range(random.randrange(12))}


def random_spans(seed: int, amount: int = 20) -> list[ReadableSpan]:
    rng = random.Random(seed)
    memory = InMemorySpanExporter()
    resource = Resource(random_attributes(rng), rng.choice(["", "https://schema"]))
    provider = TracerProvider(resource=resource, span_limits=SpanLimits(8, 3, 3))
    provider.add_span_processor(SimpleSpanProcessor(memory))
    tracers = [
        provider.get_tracer("a", "1", "https://schema/a", {"list": ("x", "y")}),
        provider.get_tracer("b"),
        provider.get_tracer("c", attributes=random_attributes(rng)),
    ]
    state = TraceState([("vendor", "x"), ("other", "y")])
    contexts = [SpanContext(rng.getrandbits(128), rng.getrandbits(64), n > 0, TraceFlags(1), state) for n in range(2)]
    for _ in range(amount):
        parent = rng.choice([None, *(trace.set_span_in_context(trace.NonRecordingSpan(c)) for c in contexts)])
        span = rng.choice(tracers).start_span(
            rng.choice(TEXTS),
            parent,
            rng.choice(list(SpanKind)),
            random_attributes(rng),
            [Link(rng.choice(contexts), random_attributes(rng)) for _ in range(rng.randrange(6))],
        )
        for _ in range(rng.randrange(6)):
            span.add_event(rng.choice(TEXTS), random_attributes(rng), rng.getrandbits(60))
        span.set_status(Status(rng.choice(list(StatusCode)), rng.choice([None, *TEXTS])))
        span.end()
    return list(memory.get_finished_spans())


@pytest.mark.parametrize("seed", range(25))
def test_the_bytes_are_those_of_the_sdk(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sdk, "encode_spans", None)  # nothing here may need the slow way
    spans = random_spans(seed)
    assert encode_sdk_spans(spans) == encode_spans(spans).SerializeToString()
    for span in spans:
        assert encode_sdk_spans([span]) == encode_spans([span]).SerializeToString()


def test_nothing_is_the_empty_request() -> None:
    assert encode_sdk_spans([]) == b""


@pytest.mark.parametrize(
    "change",
    [
        lambda attributes: attributes.update(bytes=b"\x00\xff"),
        lambda attributes: attributes.update(map={"a": {"b": [1, "two"]}}),
        lambda attributes: attributes.update(none=None),
        lambda attributes: attributes.update(mixed=[1, "two", None]),
        lambda attributes: attributes.update(large=2**70),
        lambda attributes: attributes.update(surrogate="\ud800"),
    ],
)
def test_values_of_other_kinds_go_the_slow_way(change: Callable[[dict[str, Any]], None]) -> None:
    attributes: dict[str, Any] = {"a": 1}
    change(attributes)
    context = SpanContext(1, 2, False, TraceFlags(1))
    span = ReadableSpan("s", context, attributes=attributes, resource=Resource({}), start_time=1, end_time=2)
    assert encode_sdk_spans([span]) == encode_spans([span]).SerializeToString()


def test_a_span_that_cannot_be_encoded_raises_as_the_sdk_does() -> None:
    span = ReadableSpan("bad \ud800", SpanContext(1, 2, False), resource=Resource({}))
    with pytest.raises(UnicodeEncodeError):
        encode_sdk_spans([span])
