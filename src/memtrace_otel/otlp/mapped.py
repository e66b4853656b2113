"""The Span of OTLP with its attributes as a map: who wants a few of them has protobuf look them up.

`map<string, AnyValue>` and `repeated KeyValue` are the same bytes, and of equal keys the last one counts, as in
`decode_pairs`. All other fields are those of Span, so that whatever Span refuses to read this refuses as well.
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


def read_mapped(body: bytes) -> tuple[bytes, bool, Mapping[str, AnyValue]]:
    """Return the parent id of a Span, whether its status is an error, and its attributes by name.

    Raises google.protobuf.message.DecodeError.
    """
    mapped = _MappedSpan.FromString(body)
    if UnknownFieldSet(mapped):  # an entry of a map that holds a field of a later OTLP is among them
        span = Span.FromString(body)
        return span.parent_span_id, _is_error(span), {pair.key: pair.value for pair in span.attributes}
    return mapped.parent_span_id, _is_error(mapped), mapped.attributes


def _is_error(span: Any) -> bool:
    return span.status.code == Status.STATUS_CODE_ERROR


def _descriptor() -> FileDescriptorProto:
    span = DescriptorProto()
    Span.DESCRIPTOR.CopyToProto(span)
    message = DescriptorProto(name="MappedSpan", field=span.field)
    attributes = next(field for field in message.field if field.name == "attributes")
    attributes.type_name = ".memtrace_otel.MappedSpan.AttributesEntry"
    entry = message.nested_type.add(name="AttributesEntry")
    entry.options.map_entry = True
    optional, any_value = attributes.LABEL_OPTIONAL, f".{AnyValue.DESCRIPTOR.full_name}"
    entry.field.add(name="key", number=1, label=optional, type=attributes.TYPE_STRING)
    entry.field.add(name="value", number=2, label=optional, type=attributes.TYPE_MESSAGE, type_name=any_value)
    return FileDescriptorProto(
        name="memtrace_otel/mapped.proto",
        package="memtrace_otel",
        syntax="proto3",
        dependency=[Span.DESCRIPTOR.file.name, AnyValue.DESCRIPTOR.file.name],
        message_type=[message],
    )


Default().Add(_descriptor())
_MappedSpan: Any = GetMessageClass(Default().FindMessageTypeByName("memtrace_otel.MappedSpan"))
