"""The Span that has its attributes in a map reads what Span reads, and refuses what Span refuses."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from memtrace_otel.otlp.mapped import read_mapped

TEXT = AnyValue(string_value="text")
LIST = AnyValue(array_value=ArrayValue(values=[TEXT, AnyValue(), AnyValue(int_value=1)]))


def pair(key: str, value: AnyValue | None) -> KeyValue:
    return KeyValue(key=key, value=value)


pairs = st.builds(
    pair,
    st.sampled_from(["", "a", "b", "ключ"]),
    st.sampled_from([None, AnyValue(), TEXT, LIST, AnyValue(int_value=-1), AnyValue(bytes_value=b"\xff")]),
)


def whole() -> Span:
    """A span that has something in every field."""
    return Span(
        trace_id=b"t" * 16,
        span_id=b"s" * 8,
        trace_state="state",
        parent_span_id=b"p" * 8,
        name="name",
        attributes=[KeyValue(key="a", value=TEXT), KeyValue(key="b", value=LIST)],
        events=[Span.Event(name="event", attributes=[KeyValue(key="c", value=TEXT)])],
        links=[Span.Link(trace_id=b"l" * 16, span_id=b"k" * 8, trace_state="linked")],
        status=Status(message="message"),
    )


def assert_read_as(span: Span, mapped: tuple[bytes, bool, Mapping[str, AnyValue]]) -> None:
    parent_id, failed, attributes = mapped
    assert parent_id == span.parent_span_id
    assert failed == (span.status.code == Status.STATUS_CODE_ERROR)
    assert dict(attributes) == {pair.key: pair.value for pair in span.attributes}


@given(st.lists(pairs, max_size=6), st.sampled_from([b"", b"p" * 8]), st.integers(0, 4))
def test_attributes_are_those_of_the_span_and_the_last_of_equal_keys_counts(
    attributes: list[KeyValue], parent_id: bytes, status: int
) -> None:
    span = Span(attributes=attributes, parent_span_id=parent_id, status=Status(code=status))  # type: ignore[arg-type]
    assert_read_as(span, read_mapped(span.SerializeToString()))


@pytest.mark.parametrize("later", [b"\x1a\x01x", b"\x18\x01"])
def test_an_attribute_with_a_field_that_is_not_known_yet_is_there(later: bytes) -> None:
    attribute = pair("a", TEXT).SerializeToString() + later
    body = b"J" + bytes((len(attribute),)) + attribute
    parent_id, _, attributes = read_mapped(body)
    assert (parent_id, attributes["a"]) == (b"", TEXT)


def test_a_field_of_the_span_that_is_not_known_yet_changes_nothing() -> None:
    assert_read_as(whole(), read_mapped(whole().SerializeToString() + b"\xf8\x07\x01"))


@pytest.mark.parametrize(
    "text", ["state", "name", "text", "event", "linked", "message", "a\x12"], ids=lambda text: repr(text)
)
def test_text_that_is_not_utf_8_is_refused_wherever_it_stands(text: str) -> None:
    body = whole().SerializeToString()
    found = body.index(text.encode())
    broken = body[:found] + b"\xff" + body[found + 1 :]
    for read in (Span.FromString, read_mapped):
        with pytest.raises(DecodeError):
            read(broken)


@given(st.data())
def test_a_damaged_span_is_read_by_both_or_by_none(data: st.DataObject) -> None:
    body = bytearray(whole().SerializeToString())
    if data.draw(st.booleans()):
        del body[data.draw(st.integers(0, len(body))) :]
    for place in data.draw(st.lists(st.integers(0, max(0, len(body) - 1)), max_size=3)):
        body[place : place + 1] = data.draw(st.binary(max_size=2))
    try:
        span = Span.FromString(bytes(body))
    except DecodeError:
        with pytest.raises(DecodeError):
            read_mapped(bytes(body))
        return
    assert_read_as(span, read_mapped(bytes(body)))
