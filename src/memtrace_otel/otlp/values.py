"""OTLP attribute values (AnyValue) to Python values and back.

An attribute of an operation span is a scalar or a homogeneous list. OTLP also allows maps, bytes, mixed and nested
arrays: these become JSON text, with bytes in base64. protobuf refuses values nested deeper than 100 messages.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import cast

from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue

from memtrace_otel.model import AttributeValue

_INT64 = range(-(2**63), 2**63)


def decode_any(value: AnyValue) -> object:
    """Return `value` as plain Python: str, bool, int, float, list, dict or None."""
    if text := value.string_value:  # most values are texts
        return text
    match value.WhichOneof("value"):
        case "string_value":
            return ""
        case "int_value":
            return value.int_value
        case "double_value":
            return value.double_value
        case "bool_value":
            return value.bool_value
        case "array_value":
            return [item.string_value or decode_any(item) for item in value.array_value.values]
        case "kvlist_value":
            return {item.key: decode_any(item.value) for item in value.kvlist_value.values}
        case "bytes_value":
            return base64.b64encode(value.bytes_value).decode()
        case _:
            return None


def decode_pairs(pairs: Iterable[KeyValue]) -> dict[str, object]:
    """Return key-value pairs as plain Python values; the last pair of a key counts."""
    return {pair.key: decode_any(pair.value) for pair in pairs}


def attribute_value(value: object) -> AttributeValue | None:
    """Return a plain value in the form of an attribute; None, an attribute without a value, stays None."""
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, list):
        items = cast("list[object]", value)
        types = {type(item) for item in items}
        if len(types) <= 1 and types <= {str, bool, int, float}:
            return cast("AttributeValue", items)
        if types == {int, float}:
            return [float(item) for item in cast("list[float]", items)]
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def attributes(plain: Mapping[str, object]) -> dict[str, AttributeValue]:
    """Return plain values as attributes, without those that have no value."""
    found = ((key, attribute_value(value)) for key, value in plain.items())
    return {key: value for key, value in found if value is not None}


def encode_pairs(values: Mapping[str, AttributeValue]) -> list[KeyValue]:
    """Return attributes as key-value pairs: the inverse of `attributes(decode_pairs(...))`."""
    return [KeyValue(key=text(key), value=encode_any(value)) for key, value in values.items()]


def encode_any(value: AttributeValue) -> AnyValue:
    """Return a scalar or list as AnyValue. An integer past 64 bits becomes decimal text."""
    match value:
        case bool():
            return AnyValue(bool_value=value)
        case str():
            return AnyValue(string_value=text(value))
        case int():
            return AnyValue(int_value=value) if value in _INT64 else AnyValue(string_value=str(value))
        case float():
            return AnyValue(double_value=value)
        case _:
            items = cast("Sequence[AttributeValue]", value)
            return AnyValue(array_value=ArrayValue(values=[encode_any(item) for item in items]))


def text(value: str) -> str:
    """Return text that UTF-8 can hold: a lone surrogate becomes a question mark."""
    return value if value.isascii() else value.encode("utf-8", "replace").decode("utf-8")
