"""What lineage asks of a packed span is told by its head, and the span comes back to the byte."""

from __future__ import annotations

import random
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.common.v1.common_pb2 import AnyValue, ArrayValue, KeyValue
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from memtrace_otel import semconv
from memtrace_otel.otlp.encode import encode_span
from memtrace_otel.sources.heads import _KEYS, read_head, take_head
from memtrace_otel.sources.outlines import Outline, read_outline
from memtrace_otel.sources.packing import NAMES, Packer, PackingError, make_dictionary, take_apart, unpack, unpack_head
from tests.unit.otlp.spans import random_span
from tests.unit.sources.test_packing import no_stream

DICTIONARY = make_dictionary(b"")
IDS = "ab" * 16, "cd" * 8
ORIGIN = f"{'0f' * 16}-{'77' * 8}"
ARRAYS = (semconv.INPUTS, semconv.INPUTS_ORIGINS, semconv.OUTPUTS, semconv.OUTPUTS_ACTIONS)


def attribute(key: str, texts: Sequence[str]) -> KeyValue:
    values = [AnyValue(string_value=text) for text in texts]
    return KeyValue(key=key, value=AnyValue(array_value=ArrayValue(values=values)))


def body(*attributes: KeyValue, parent: bytes = b"", code: int = 0) -> bytes:
    trace_id, span_id = map(bytes.fromhex, IDS)
    status = Status(code=code)  # type: ignore[arg-type]
    span = Span(trace_id=trace_id, span_id=span_id, parent_span_id=parent, name="n", status=status)
    span.attributes.extend((KeyValue(key="memtrace.op.kind", value=AnyValue(string_value="update")), *attributes))
    return span.SerializeToString()


def outlines(body: bytes, ids: tuple[str, str] = IDS) -> tuple[Outline, Outline | None]:
    """As the span as received tells it, and as the head of the packed one does; that one has to come back."""
    plain = read_outline(*ids, "update", "", (None, lambda: body), ({}, ""))
    packed = take_apart(Packer(NAMES, DICTIONARY).pack(body))
    if packed is None:
        return plain, None
    assert unpack(packed, DICTIONARY, *ids, no_stream) == body
    if not packed.head:
        return plain, None
    return plain, read_outline(*ids, "update", "", (unpack_head(packed, ids[0]), lambda: body), ({}, ""))


def told(outline: Outline) -> tuple[object, ...]:
    """What does not depend on where it was read."""
    return tuple(list(part) if isinstance(part, list | tuple) else part for part in outline[:-2])


@pytest.mark.parametrize("size", range(130))
def test_a_text_of_any_length_comes_back(size: int) -> None:
    for texts in (["x" * size], ["x" * size, "y"]):
        plain, headed = outlines(body(attribute(semconv.OUTPUTS, texts), attribute("words", ["memtrace.inputs"] * 9)))
        assert (headed is None) == (size > 121)
        assert told(headed or plain) == told(plain)


USUAL = (
    attribute(semconv.INPUTS, ["query:1", "memory:7", ""]),
    attribute(semconv.INPUTS_ORIGINS, ["", ORIGIN, f"{IDS[0]}-{'12' * 8}"]),
    attribute(semconv.OUTPUTS, ["memory:7"]),
    attribute(semconv.OUTPUTS_ACTIONS, ["UPDATE"]),
)


def test_the_format_has_the_names_of_the_wire() -> None:
    assert _KEYS == ("memtrace.inputs", "memtrace.inputs.origins", "memtrace.outputs", "memtrace.outputs.actions")


@pytest.mark.parametrize("parent", [b"", b"12345678", bytes(8), b"short"])
@pytest.mark.parametrize("code", [Status.STATUS_CODE_UNSET, Status.STATUS_CODE_OK, Status.STATUS_CODE_ERROR])
@pytest.mark.parametrize("more", [(), (attribute(semconv.FLOW, ["0>0"]),)])
def test_a_head_tells_what_the_span_does(parent: bytes, code: int, more: tuple[KeyValue, ...]) -> None:
    plain, headed = outlines(body(*USUAL, *more, parent=parent, code=code))
    assert headed is not None
    assert told(headed) == told(plain)
    assert headed.failed == (code == Status.STATUS_CODE_ERROR)
    assert headed.has_flow == bool(more)


@pytest.mark.parametrize(
    "attributes",
    [
        (attribute(semconv.INPUTS, ["with \x1e in it"]),),
        (attribute(semconv.INPUTS, ["möwe:1"]),),
        (attribute(semconv.INPUTS, ["x" * 200]),),
        (attribute(semconv.INPUTS, ["x" * 122]),),
        (attribute(semconv.INPUTS, ["x" * 123]),),
        (attribute(semconv.OUTPUTS, [f"chunk:{n}" for n in range(91)]),),
        (KeyValue(key=semconv.INPUTS, value=AnyValue(string_value='["query:1"]')),),
        (KeyValue(key=semconv.PART, value=AnyValue(int_value=2)), *USUAL),
    ],
)
def test_what_a_head_cannot_tell_has_none(attributes: tuple[KeyValue, ...]) -> None:
    _, headed = outlines(body(*attributes, attribute("words", ["memtrace.inputs.contents"] * 9)))
    assert headed is None


@pytest.mark.parametrize("last", [["another"], ["query:1", "memory:7", ""]])
def test_of_equal_names_the_last_one_is_told(last: list[str]) -> None:
    plain, headed = outlines(body(*USUAL, attribute(semconv.INPUTS, last)))
    assert headed is not None
    assert told(headed) == told(plain)
    assert headed.inputs == last


def test_what_would_be_cut_out_of_another_array_is_left_there() -> None:
    outputs = attribute(semconv.OUTPUTS, ["memory:7"]).SerializeToString()
    inside = (b"J" + bytes([len(outputs)]) + outputs).decode()
    odd = b"\x0a\x90\x00memtrace.outputs" + outputs[18:]  # its length as an encoder may write it, too
    whole = body(attribute(semconv.INPUTS, ["query:1", inside])) + b"J" + bytes([len(odd)]) + odd
    assert [pair.key for pair in Span.FromString(whole).attributes][-1] == semconv.OUTPUTS
    plain, headed = outlines(whole)
    assert headed is None
    assert list(plain.outputs) == ["memory:7"]


def test_what_only_begins_in_the_ids_is_left_there() -> None:
    made = b"J" + bytes([len(pair := attribute(semconv.INPUTS, ["query:1", "memory:7"]).SerializeToString())]) + pair
    ids = IDS[0], made[:8].hex()
    spelled = made[:1] + bytes([made[1] | 0x80, 0]) + made[2:]  # its length as an encoder may write it, too
    crafted = b"\x0a\x10" + bytes.fromhex(ids[0]) + b"\x12\x08" + made + spelled
    packed = Packer(NAMES, DICTIONARY).pack(crafted)
    assert packed == crafted or unpack(take_apart(packed), DICTIONARY, *ids, no_stream) == crafted  # type: ignore[arg-type]


def test_a_head_that_would_not_give_the_body_back_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = body(*USUAL, attribute("words", ["memtrace.inputs"] * 9))

    def wrong(body: bytes) -> object:
        head, cuts = take_head(body)  # type: ignore[misc]
        return head, [(begin, end - 1, place) for begin, end, place in cuts]

    assert take_apart(Packer(NAMES, DICTIONARY).pack(whole)).head  # type: ignore[union-attr]
    monkeypatch.setattr("memtrace_otel.sources.packing.take_head", wrong)
    packed = take_apart(Packer(NAMES, DICTIONARY).pack(whole))
    assert packed
    assert not packed.head
    assert unpack(packed, DICTIONARY, *IDS, no_stream) == whole


def test_spans_of_all_kinds_come_back_and_most_have_heads() -> None:
    rng = random.Random(7)
    headed = 0
    for _ in range(300):
        span = random_span(rng)
        plain, told_by_head = outlines(encode_span(span).SerializeToString(), (span.trace_id, span.span_id))
        if told_by_head:
            headed += 1
            assert told(told_by_head) == told(plain)
    assert headed > 30


texts = st.lists(st.text(st.characters(max_codepoint=130), max_size=20) | st.sampled_from(["", ORIGIN]), max_size=5)


@given(st.lists(st.tuples(st.sampled_from((*ARRAYS, "other")), texts), max_size=7), st.binary(max_size=80), st.data())
def test_any_span_comes_back(arrays: list[tuple[str, list[str]]], rest: bytes, data: st.DataObject) -> None:
    attributes = [attribute(key, texts) for key, texts in arrays]
    written = (pair.SerializeToString() for pair in attributes)
    inside = data.draw(st.sampled_from([b"", *(b"J" + bytes([len(a)]) + a for a in written if len(a) < 128)]))
    hidden = KeyValue(key="hidden", value=AnyValue(bytes_value=inside + rest))
    order = data.draw(st.permutations([*attributes, hidden]))
    whole = body(*order)
    plain, headed = outlines(whole)
    if headed:
        assert told(headed) == told(plain)


@pytest.mark.parametrize("head", [b"", b"!!!!", b'!$"#!\x1ea', b"\xff" * 9, b'!#"!#a\x1eb'])
def test_what_is_no_head_is_an_error(head: bytes) -> None:
    with pytest.raises(ValueError):  # noqa: PT011
        read_head(head)


def test_a_cut_off_head_is_an_error() -> None:
    packed = take_apart(Packer(NAMES, DICTIONARY).pack(body(*USUAL, attribute("words", ["memtrace.inputs"] * 9))))
    assert packed
    assert packed.head
    for size in (0, 3, 9, len(packed.head) - 12):
        with pytest.raises(PackingError):
            unpack_head(packed._replace(head=packed.head[:size]), IDS[0])
