"""The Span that has its attributes in a map reads what Span reads; what it does not look into it does not refuse."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from memtrace_otel.otlp.mapped import read_any, read_mapped, read_texts
from memtrace_otel.otlp.values import decode_any

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


def assert_read_as(span: Span, mapped: tuple[bytes, bool, Mapping[str, bytes]]) -> None:
    parent_id, failed, attributes = mapped
    assert parent_id == span.parent_span_id
    assert failed == (span.status.code == Status.STATUS_CODE_ERROR)
    values = {key: AnyValue.FromString(value) for key, value in attributes.items()}
    assert values == {pair.key: pair.value for pair in span.attributes}


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
    assert (parent_id, AnyValue.FromString(attributes["a"])) == (b"", TEXT)


def test_a_field_of_the_span_that_is_not_known_yet_changes_nothing() -> None:
    assert_read_as(whole(), read_mapped(whole().SerializeToString() + b"\xf8\x07\x01"))


@pytest.mark.parametrize("text", ["state", "name", "message", "a\x12"], ids=lambda text: repr(text))
def test_text_of_the_span_itself_that_is_not_utf_8_is_refused(text: str) -> None:
    body = whole().SerializeToString()
    found = body.index(text.encode())
    broken = body[:found] + b"\xff" + body[found + 1 :]
    for read in (Span.FromString, read_mapped):
        with pytest.raises(DecodeError):
            read(broken)


items = st.one_of(
    st.text(max_size=6).map(lambda text: AnyValue(string_value=text)),
    st.sampled_from([0, 1, 48, 49, 121, 122, 125, 126, 200]).map(lambda size: AnyValue(string_value="r" * size)),
    st.sampled_from([AnyValue(), LIST, AnyValue(int_value=3)]),
)
arrays = st.lists(items, max_size=4).map(lambda values: AnyValue(array_value=ArrayValue(values=values)))


@given(st.one_of(arrays, st.sampled_from([AnyValue(), TEXT, AnyValue(int_value=1), AnyValue(bytes_value=b"*")])))
def test_texts_are_those_of_the_array(value: AnyValue) -> None:
    assert read_texts(value.SerializeToString()) == [item.string_value for item in value.array_value.values]
    assert read_any(value.SerializeToString()) == decode_any(value)


@given(items)
def test_a_value_is_read_as_whole_spans_read_it(value: AnyValue) -> None:
    assert read_any(value.SerializeToString()) == decode_any(value)


@pytest.mark.parametrize(
    ("text", "texts"), [('["a","b"]', ["a", "b"]), ('["a",1]', ["a", ""]), ("[]", []), ('["a"', []), ("a", [])]
)
def test_an_array_that_a_backend_keeps_as_a_text_is_read(text: str, texts: list[str]) -> None:
    assert read_texts(AnyValue(string_value=text).SerializeToString()) == texts


def test_texts_of_a_long_array_are_read() -> None:
    texts = [f"memory:{number}" for number in range(3000)]
    for count in (6, 10, 1000, 3000):
        value = AnyValue(array_value=ArrayValue(values=[AnyValue(string_value=text) for text in texts[:count]]))
        assert read_texts(value.SerializeToString()) == texts[:count]


@given(st.one_of(arrays, items), st.data())
def test_a_damaged_value_is_read_as_protobuf_reads_it_or_refused(value: AnyValue, data: st.DataObject) -> None:
    body = bytearray(value.SerializeToString())
    if data.draw(st.booleans()):
        del body[data.draw(st.integers(0, len(body))) :]
    for place in data.draw(st.lists(st.integers(0, max(0, len(body) - 1)), max_size=3)):
        body[place : place + 1] = data.draw(st.binary(max_size=2))
    try:
        expected = AnyValue.FromString(bytes(body))
    except DecodeError:
        for read in (read_texts, read_any):
            with pytest.raises(DecodeError):
                read(bytes(body))
        return
    assert read_texts(bytes(body)) == [item.string_value for item in expected.array_value.values]
    assert read_any(bytes(body)) == decode_any(expected)


@given(st.data())
def test_a_damaged_span_that_can_be_read_is_read_as_it_is(data: st.DataObject) -> None:
    body = bytearray(whole().SerializeToString())
    if data.draw(st.booleans()):
        del body[data.draw(st.integers(0, len(body))) :]
    for place in data.draw(st.lists(st.integers(0, max(0, len(body) - 1)), max_size=3)):
        body[place : place + 1] = data.draw(st.binary(max_size=2))
    try:
        span = Span.FromString(bytes(body))
    except DecodeError:
        return
    parent_id, failed, attributes = read_mapped(bytes(body))
    assert (parent_id, failed) == (span.parent_span_id, span.status.code == Status.STATUS_CODE_ERROR)
    assert set(attributes) == {pair.key for pair in span.attributes}
