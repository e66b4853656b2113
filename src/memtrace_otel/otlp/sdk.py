"""Finished spans of the SDK to OTLP bytes, in a fraction of the time that building protobuf messages takes.

The bytes are those of the SDK's encoder: every message writes its fields in the order of their numbers, and a tag below
is `number << 3 | wire type`. Only the grouping differs where equal resources or scopes are different objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from struct import Struct
from typing import cast

from opentelemetry.exporter.otlp.proto.common.trace_encoder import encode_spans
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import Event, ReadableSpan
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Link, SpanContext

_double, _fixed32, _fixed64 = Struct("<d").pack, Struct("<I").pack, Struct("<Q").pack
_HAS_IS_REMOTE, _IS_REMOTE = 0x100, 0x200
_SMALL = tuple(bytes((n,)) for n in range(128))


def encode_sdk_spans(spans: Sequence[ReadableSpan]) -> bytes:
    """Return an ExportTraceServiceRequest. Raises what the SDK's encoder raises for a span that cannot be encoded."""
    try:
        return _request(spans)
    except Exception:  # something that is not expected here: the SDK's encoder knows, or says what is wrong
        return encode_spans(spans).SerializeToString()


def _request(spans: Iterable[ReadableSpan]) -> bytes:
    groups: dict[int, tuple[Resource, dict[int, tuple[InstrumentationScope | None, list[bytes]]]]] = {}
    for span in spans:
        resource, scope = span.resource, span.instrumentation_scope
        scopes = groups.setdefault(id(resource), (resource, {}))[1]
        scopes.setdefault(id(scope), (scope, []))[1].append(_field(b"\x12", _span(span)))
    request: list[bytes] = []
    for resource, scopes in groups.values():
        body = [_field(b"\x0a", _attributes(b"\x0a", resource.attributes))]
        body += [
            _field(b"\x12", _scope(scope) + b"".join(encoded) + _schema(scope)) for scope, encoded in scopes.values()
        ]
        request.append(_field(b"\x0a", b"".join(body) + _schema(resource)))
    return b"".join(request)


def _scope(scope: InstrumentationScope | None) -> bytes:
    if scope is None:
        return b"\x0a\x00"
    body = _text(b"\x0a", scope.name) + _text(b"\x12", scope.version) + _attributes(b"\x1a", scope.attributes)
    return _field(b"\x0a", body)


def _schema(of: Resource | InstrumentationScope | None) -> bytes:
    return _text(b"\x1a", of.schema_url) if of is not None else b""


def _span(span: ReadableSpan) -> bytes:
    own, parent, status = span.get_span_context(), span.parent, span.status
    assert own is not None
    return b"".join(
        (
            b"\x0a\x10",
            own.trace_id.to_bytes(16),
            b"\x12\x08",
            own.span_id.to_bytes(8),
            _text(b"\x1a", ",".join(f"{key}={value}" for key, value in own.trace_state.items())),
            b"\x22\x08" + parent.span_id.to_bytes(8) if parent else b"",
            _text(b"\x2a", span.name),
            b"\x30" + _SMALL[span.kind.value + 1],
            _time(b"\x39", span.start_time),
            _time(b"\x41", span.end_time),
            _attributes(b"\x4a", span.attributes),
            _count(b"\x50", span.dropped_attributes),
            *[_field(b"\x5a", _event(event)) for event in span.events],
            _count(b"\x60", span.dropped_events),
            *[_field(b"\x6a", _link(link)) for link in span.links],
            _count(b"\x70", span.dropped_links),
            _field(b"\x7a", _text(b"\x12", status.description) + _count(b"\x18", status.status_code.value)),
            b"\x85\x01" + _flags(parent),
        )
    )


def _event(event: Event) -> bytes:
    head = _time(b"\x09", event.timestamp) + _text(b"\x12", event.name)
    return head + _attributes(b"\x1a", event.attributes) + _count(b"\x20", event.dropped_attributes)


def _link(link: Link) -> bytes:
    context = link.context
    return b"".join(
        (
            b"\x0a\x10",
            context.trace_id.to_bytes(16),
            b"\x12\x08",
            context.span_id.to_bytes(8),
            _attributes(b"\x22", link.attributes),
            _count(b"\x28", link.dropped_attributes),
            b"\x35" + _flags(context),
        )
    )


def _flags(context: SpanContext | None) -> bytes:
    return _fixed32(_HAS_IS_REMOTE | _IS_REMOTE if context and context.is_remote else _HAS_IS_REMOTE)


def _attributes(tag: bytes, attributes: Mapping[str, object] | None) -> bytes:
    if not attributes:
        return b""
    pairs = [_text(b"\x0a", key) + _field(b"\x12", _value(value)) for key, value in attributes.items()]
    return b"".join([_field(tag, pair) for pair in pairs])


def _value(value: object) -> bytes:
    """An AnyValue. Raises for what the SDK's encoder has to see."""
    if isinstance(value, str):
        return _field(b"\x0a", value.encode())
    if isinstance(value, tuple | list):
        items = cast("Sequence[object]", value)
        return _field(b"\x2a", b"".join([_field(b"\x0a", _value(item)) for item in items]))
    if isinstance(value, bool):
        return b"\x10\x01" if value else b"\x10\x00"
    if isinstance(value, int):
        return b"\x18" + _varint(int.from_bytes(value.to_bytes(8, signed=True)))  # two's complement
    if isinstance(value, float):
        return b"\x21" + _double(value)
    raise TypeError(type(value).__name__)


def _field(tag: bytes, body: bytes) -> bytes:
    """A field of bytes, text or a message; also when it is empty."""
    size = len(body)
    return tag + (_SMALL[size] if size < 128 else _varint(size)) + body


def _text(tag: bytes, text: str | None) -> bytes:
    return _field(tag, text.encode()) if text else b""


def _time(tag: bytes, nanoseconds: int | None) -> bytes:
    return tag + _fixed64(nanoseconds) if nanoseconds else b""


def _count(tag: bytes, number: int) -> bytes:
    return tag + _varint(number) if number else b""


def _varint(number: int) -> bytes:
    encoded = bytearray()
    while number > 127:
        encoded.append(number & 127 | 128)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)
