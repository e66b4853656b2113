"""The Span of OTLP with its attributes as a map of bytes: who wants a few of them has protobuf look them up.

`map<string, bytes>` and `repeated KeyValue` are the same bytes, and of equal keys the last one counts, as in
`decode_pairs`. Values, events and links are not looked into: what is damaged there only who reads them refuses.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import Default
from google.protobuf.message_factory import GetMessageClass
from google.protobuf.unknown_fields import UnknownFieldSet
from opentelemetry.proto.common.v1.common_pb2 import AnyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

_SHORT = [f"\n{chr(size + 2)}\n{chr(size)}" for size in range(122)]
"""How an item of an array that is a text of so many bytes begins, as characters."""
_SOLE = [f"*{chr(size + 4)}{item}" for size, item in enumerate(_SHORT)]
"""How an AnyValue begins that is an array of one such text."""
_SIZES = {item: size + len(item) for size, item in enumerate(_SHORT)}


def read_mapped(body: bytes) -> tuple[bytes, bool, Mapping[str, bytes]]:
    """Return the parent id of a Span, whether its status is an error, and its attributes, AnyValues, by name.

    Raises google.protobuf.message.DecodeError.
    """
    mapped = _MappedSpan.FromString(body)
    status: bytes = mapped.status
    failed = bool(status) and Status.FromString(status).code == Status.STATUS_CODE_ERROR
    if UnknownFieldSet(mapped):  # an entry of a map that holds a field of a later OTLP is among them
        attributes = {pair.key: pair.value.SerializeToString() for pair in Span.FromString(body).attributes}
        return mapped.parent_span_id, failed, attributes
    return mapped.parent_span_id, failed, mapped.attributes


def read_texts(value: bytes) -> list[str]:
    """Return the items of an AnyValue that is an array, '' for what is no text; [] of any other value.

    Raises google.protobuf.message.DecodeError.
    """
    try:
        return _short_texts(value)
    except (LookupError, ValueError):
        # A repeated field is walked in half the time when it is a list.
        return [item.string_value for item in AnyValue.FromString(value).array_value.values[:]]


def _short_texts(value: bytes) -> list[str]:
    """As `read_texts`, in a third of the time; LookupError or ValueError when there are not just short texts in ASCII,
    in an array of less than 16 KiB."""
    if len(value) < 128 and value.isascii():
        whole = value.decode()
        text = whole[6:]
        if whole[:6] == _SOLE[len(text)]:
            return [text]
    start = 2 if value[1] < 128 else 3
    size = len(value) - start
    if value[:start] != (b"*" + bytes((size,)) if size < 128 else bytes((42, size & 127 | 128, size >> 7))):
        raise ValueError
    items = value[start:].decode("ascii")
    found: list[str] = []
    at = 0
    while at < size:
        end = at + _SIZES[items[at : at + 4]]
        found.append(items[at + 4 : end])
        at = end
    if at > size:
        raise ValueError
    return found


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
        message_type=[message],
    )


Default().Add(_descriptor())
_MappedSpan: Any = GetMessageClass(Default().FindMessageTypeByName("memtrace_otel.MappedSpan"))
