"""The Span of OTLP with its attributes as a map of bytes: who wants a few of them has protobuf look them up. And the
request of OTLP with its spans as bytes, each as it was sent.

`map<string, bytes>` and `repeated KeyValue` are the same bytes, and of equal keys the last one counts, as in
`decode_pairs`. Values, events and links are not looked into: what is damaged there only who reads them refuses. Of a
value that is sent in pieces, which protobuf would merge and no encoder makes, the last one counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import Default
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from memtrace_otel.otlp.fields import array_of_text
from memtrace_otel.otlp.values import decode_any

_TRACE_ID, _SPAN_ID = b"\x0a\x10", b"\x12\x08"
"""How the ids of a Span begin that are as long as they have to be."""
_TEXT, _ARRAY = 10, 42
"""How an AnyValue begins that is a text, or an array."""
SHORT = [f"\n{chr(size + 2)}\n{chr(size)}" for size in range(122)]
"""How an item of an array that is a text of so many bytes begins, as characters."""
_SIZES = {item: size for size, item in enumerate(SHORT)}
_SOLE = [f"*{chr(size)}\n{chr(size - 2)}\n{chr(size - 4)}" if size >= 4 else "" for size in range(128)]
"""How an AnyValue of so many bytes, with two in front, begins that is an array of one such text."""


def read_mapped(body: bytes) -> tuple[bytes, bool, Mapping[str, bytes]]:
    """Return the parent id of a Span, whether its status is an error, and its attributes, AnyValues, by name.

    Raises google.protobuf.message.DecodeError.
    """
    mapped = _MappedSpan.FromString(body)
    status: bytes = mapped.status
    failed = bool(status) and Status.FromString(status).code == Status.STATUS_CODE_ERROR
    return mapped.parent_span_id, failed, _attributes(mapped, body)


def span_bodies(body: bytes) -> list[Sequence[bytes]]:
    """Return the Spans of an ExportTraceServiceRequest as they were sent, one list per ScopeSpans. They are not looked
    into: what is damaged in them the request itself refuses. Raises as `read_mapped`."""
    request = _Bodies.FromString(body)
    return [
        scope_spans.spans[:] for resource_spans in request.resource_spans for scope_spans in resource_spans.scope_spans
    ]


def leading_ids(body: bytes) -> tuple[bytes, bytes] | None:
    """Return trace id and span id of a Span that begins with them, of the right length, as SDKs write it; None of any
    other. One that has them once more further on has other ids: the last ones count."""
    return (body[2:18], body[20:28]) if body[:2] == _TRACE_ID and body[18:20] == _SPAN_ID else None


def map_span(body: bytes) -> Any:
    """Return the message that a Span is, its attributes as a map of bytes. Raises as `read_mapped`."""
    return _MappedSpan.FromString(body)


def mapped_attributes(mapped: Any, body: bytes) -> tuple[Mapping[str, bytes], Sequence[bytes]]:
    """Return the attributes of a Span that `map_span` made of `body`, AnyValues, by name, and its events."""
    return _attributes(mapped, body), mapped.events


def _attributes(mapped: Any, body: bytes) -> Mapping[str, bytes]:
    if UnknownFieldSet(mapped):  # an entry of a map that holds a field of a later OTLP is among them
        return {pair.key: pair.value.SerializeToString() for pair in Span.FromString(body).attributes}
    return mapped.attributes


def read_any(value: bytes) -> object:
    """Do what `decode_any` does to an AnyValue; for short texts, and arrays of them, in half the time."""
    try:
        if value[0] == _TEXT and value[1] == len(value) - 2 < 128:
            return value[2:].decode()
        if value[0] == _ARRAY:
            return short_texts(value)
    except (LookupError, ValueError):
        pass
    return decode_any(AnyValue.FromString(value))


def read_texts(value: bytes) -> list[str]:
    """Return the items of an AnyValue that is an array or the JSON text of one, '' for what is no text; else [].

    Raises google.protobuf.message.DecodeError.
    """
    try:
        return short_texts(value)
    except (LookupError, ValueError):
        read = AnyValue.FromString(value)
        if isinstance(items := array_of_text(read.string_value), list):
            return [item if isinstance(item, str) else "" for item in cast("list[object]", items)]
        # A repeated field is walked in half the time when it is a list.
        return [item.string_value for item in read.array_value.values[:]]


def short_texts(value: bytes) -> list[str]:
    """As `read_texts`, in a third of the time; LookupError or ValueError when there are not just short texts in ASCII,
    in an array of less than 16 KiB."""
    size = value[1]
    if size < 128:
        items = value.decode("ascii")
        if items[:6] == _SOLE[size] and len(items) == size + 2:
            return [items[6:]]
        if items[0] != "*" or len(items) != size + 2:
            raise ValueError
        at = 2
    else:
        size = len(value) - 3
        if value[:3] != bytes((42, size & 127 | 128, size >> 7)):
            raise ValueError
        items = value[3:].decode("ascii")
        at = 0
    found: list[str] = []
    end = len(items)
    while at < end:
        text = at + 4
        at = text + _SIZES[items[at:text]]
        found.append(items[text:at])
    if at > end:
        raise ValueError
    return found


def _bodies() -> DescriptorProto:
    """A request with its spans as bytes; what is beside them is left as it is."""
    spans = DescriptorProto(name="ScopeSpans")
    spans.field.add(name="spans", number=2, label="LABEL_REPEATED", type="TYPE_BYTES")
    groups = DescriptorProto(name="ResourceSpans", nested_type=[spans])
    groups.field.add(name="scope_spans", number=2, label="LABEL_REPEATED", type="TYPE_MESSAGE", type_name="ScopeSpans")
    bodies = DescriptorProto(name="Bodies", nested_type=[groups])
    bodies.field.add(
        name="resource_spans", number=1, label="LABEL_REPEATED", type="TYPE_MESSAGE", type_name="ResourceSpans"
    )
    return bodies


def _descriptor() -> FileDescriptorProto:
    span = DescriptorProto()
    Span.DESCRIPTOR.CopyToProto(span)
    message = DescriptorProto(name="MappedSpan", field=span.field)
    for field in message.field:
        if field.name == "attributes":
            field.type_name = ".memtrace_otel.MappedSpan.AttributesEntry"
        elif field.type == field.TYPE_MESSAGE:
            field.type = field.TYPE_BYTES
            field.ClearField("type_name")
    entry = message.nested_type.add(name="AttributesEntry")
    entry.options.map_entry = True
    entry.field.add(name="key", number=1, label="LABEL_OPTIONAL", type="TYPE_STRING")
    entry.field.add(name="value", number=2, label="LABEL_OPTIONAL", type="TYPE_BYTES")
    return FileDescriptorProto(
        name="memtrace_otel/mapped.proto",
        package="memtrace_otel",
        syntax="proto3",
        dependency=[Span.DESCRIPTOR.file.name],
        message_type=[message, _bodies()],
    )


Default().Add(_descriptor())
_MappedSpan: Any = GetMessageClass(Default().FindMessageTypeByName("memtrace_otel.MappedSpan"))
_Bodies: Any = GetMessageClass(Default().FindMessageTypeByName("memtrace_otel.Bodies"))
