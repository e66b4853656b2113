"""Rows W of the conformance list: where the peer's graph is wrong, what ours asserts of handle and decorator.

W4, W5, W10 and W11 are about whole systems, W17 about exports: their tests are beside those.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from itertools import product
from time import time_ns

import pytest
from opentelemetry.sdk.trace import ReadableSpan

from memtrace_otel import semconv
from memtrace_otel.capture import operation, scope_id, variable_ref
from memtrace_otel.model import make_origin, make_ref, split_ref
from memtrace_otel.semconv import RefKind
from tests.conftest import Recording

SCOPE = scope_id("store", user="ana")


def attribute(span: ReadableSpan, name: str) -> list[object]:
    assert span.attributes is not None
    return list(span.attributes.get(name, ()))  # type: ignore[arg-type]


def test_w1_an_input_is_recorded_as_it_was_before_the_call(recording: Recording) -> None:
    @operation(kind="update", system="t", tracer=recording.tracer, inputs={"buffer": "state"}, output="state")
    def push(buffer: dict[str, list[str]], item: str) -> dict[str, list[str]]:
        buffer["items"].append(item)
        return buffer

    push({"items": []}, "new")
    [span] = recording.spans()
    assert attribute(span, semconv.INPUTS) == [variable_ref("state", {"items": []})]
    assert attribute(span, semconv.OUTPUTS) == [variable_ref("state", {"items": ["new"]})]


def test_w2_a_value_that_comes_back_unchanged_is_no_output(recording: Recording) -> None:
    @operation(kind="other", system="t", tracer=recording.tracer, inputs={"texts": "fact"}, output="fact")
    def keep(texts: list[str]) -> list[str]:
        return [*texts, "new"]

    keep(["a", "b"])
    assert attribute(recording.spans()[0], semconv.OUTPUTS) == [variable_ref("fact", "new")]


def test_w3_equal_texts_of_two_operations_are_two_versions(recording: Recording) -> None:
    @operation(kind="extract", system="t", tracer=recording.tracer, output="fact")
    def gap() -> str:
        return "moments later"

    gap(), gap()
    first, second = recording.spans()
    assert attribute(first, semconv.OUTPUTS) == attribute(second, semconv.OUTPUTS)
    assert first.context != second.context  # a version is (ref, origin)


def test_w6_a_batch_that_maps_one_to_one_has_one_dependency_each(recording: Recording) -> None:
    @operation(
        kind="other", system="t", tracer=recording.tracer, inputs={"texts": "fact"}, output="chunk", each="texts"
    )
    def upper(texts: list[str]) -> list[str]:
        return [text.upper() for text in texts]

    @operation(
        kind="other", system="t", tracer=recording.tracer, inputs={"texts": "fact"}, output="chunk", each="texts"
    )
    def stream(texts: list[str]) -> Iterator[str]:
        yield from map(str.upper, texts)

    texts = [f"text {n}" for n in range(10)]
    upper(texts)
    list(stream(texts))
    with operation(kind="other", system="t", tracer=recording.tracer) as op:
        for text in texts:
            op.wrote(variable_ref("chunk", text), sources=[op.read(variable_ref("fact", text))])
    for span in recording.spans():
        assert attribute(span, semconv.FLOW) == [f"{n}>{n}" for n in range(10)]


def test_w6_a_batch_that_drops_items_claims_no_pairs(recording: Recording) -> None:
    @operation(
        kind="other", system="t", tracer=recording.tracer, inputs={"texts": "fact"}, output="chunk", each="texts"
    )
    def some(texts: list[str]) -> list[str]:
        return texts[1:]

    some(["a", "b", "c"])
    assert semconv.FLOW not in (recording.spans()[0].attributes or {})


def test_w7_calls_that_return_nothing_share_nothing(recording: Recording) -> None:
    @operation(kind="other", system="t", tracer=recording.tracer, output="fact")
    def nothing() -> None: ...

    nothing(), nothing()
    assert [attribute(span, semconv.OUTPUTS) for span in recording.spans()] == [[], []]


@pytest.mark.usefixtures("content_on")
def test_w8_arguments_are_only_ever_data(recording: Recording) -> None:
    @operation(kind="extract", system="t", tracer=recording.tracer, inputs={"value": "message"})
    def take(value: object) -> None: ...

    take(("text", {"category": "other", "kind": "query", "id": "x"}))
    [span] = recording.spans()
    assert attribute(span, semconv.INPUTS_ROLES) == ["message", "message"]
    assert attribute(span, semconv.INPUTS_CONTENTS) == ["text", '{"category": "other", "id": "x", "kind": "query"}']
    assert (span.attributes or {})[semconv.OP_KIND] == "extract"


@pytest.mark.parametrize("kind", ["retrieve", "extract"])
def test_w9_an_empty_result_is_recorded(recording: Recording, kind: str) -> None:
    @operation(kind=kind, system="t", tracer=recording.tracer, inputs={"queries": "query"}, output="memory")
    def find(queries: list[str]) -> list[str]:
        return []

    assert find([]) == []
    [span] = recording.spans()
    outputs = attribute(span, semconv.OUTPUTS_ROLES)
    assert outputs == (["context"] if kind == "retrieve" else [])


def test_w12_nested_operations_are_parent_and_child(recording: Recording) -> None:
    @operation(kind="extract", system="t", tracer=recording.tracer, output="fact")
    def inner() -> str:
        return "fact"

    @operation(kind="ingest", system="t", tracer=recording.tracer, output="state")
    def outer() -> str:
        return inner() + "s"

    outer()
    parent, child = recording.spans()
    assert child.parent is not None
    assert parent.context is not None
    assert child.parent.span_id == parent.context.span_id
    assert attribute(parent, semconv.OUTPUTS) == [variable_ref("state", "facts")]
    assert attribute(child, semconv.OUTPUTS) == [variable_ref("fact", "fact")]


def test_w13_kind_and_id_never_collide() -> None:
    ids = ["1", "q:1", "query:1", "%3A", "a b", "a%20b", "a,b", "a|b", ":"]
    refs = {make_ref(kind, id): (kind, id) for kind, id in product(RefKind, ids)}
    assert len(refs) == len(RefKind) * len(ids)
    assert all(split_ref(ref) == named for ref, named in refs.items())


def test_w13_the_same_content_has_the_same_digest_in_two_processes() -> None:
    values = "[{'b', 'a', 'c', 3, None}, {'k': frozenset({'x', 'y'}), 'a': (1, 2.5)}, [{'deep': {'s', 't'}}]]"
    code = f"from memtrace_otel.capture import variable_ref; print(*[variable_ref('fact', v) for v in {values}])"
    seen = {
        subprocess.run(
            [sys.executable, "-c", code],
            env={"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(seen) == 1
    assert "unserialisable" not in seen.pop()


def test_w14_order_comes_from_sequence_numbers_and_times_are_utc_nanoseconds(recording: Recording) -> None:
    before = time_ns()
    for _ in range(200):
        with operation(kind="other", system="t", tracer=recording.tracer):
            pass
    numbers = [(span.attributes or {})[semconv.SEQ] for span in recording.spans()]
    assert numbers == sorted(set(numbers))  # type: ignore[type-var]
    assert all(before <= (span.start_time or 0) <= (span.end_time or 0) <= time_ns() for span in recording.spans())


def test_w15_a_streamed_reply_is_recorded_whole(recording: Recording) -> None:
    @operation(kind="respond", system="t", tracer=recording.tracer, output="answer")
    def reply() -> Iterator[str]:
        yield from ("In ", "Lisbon", ".")

    assert "".join(reply()) == "In Lisbon."
    assert attribute(recording.spans()[0], semconv.OUTPUTS) == [variable_ref("answer", "In Lisbon.")]


@pytest.mark.usefixtures("content_on")
def test_w16_content_is_stored_byte_for_byte_and_attributes_stay_on_the_operation(recording: Recording) -> None:
    text = 'said "tea" \\n\tñ'
    with operation(kind="other", system="t", tracer=recording.tracer, attributes={"model": "m"}) as op:
        op.read("message:1", content=text)
        op.wrote("fact:1", content=text)
    [span] = recording.spans()
    assert attribute(span, semconv.INPUTS_CONTENTS) == [text]
    assert attribute(span, semconv.OUTPUTS_CONTENTS) == [text]
    assert (span.attributes or {})["model"] == "m"


def test_b3_nothing_is_evaluated_while_nothing_records() -> None:
    class Fallible:
        def __getattribute__(self, name: str) -> object:
            raise AssertionError("touched")

    @operation(kind="extract", system="t", inputs={"value": "message"}, output="fact")
    def take(value: object) -> object:
        return value

    value = Fallible()
    assert take(value) is value
    with operation(kind="extract", system="t") as op:
        assert op.read("message:1", content=value) == -1
        assert op.wrote("fact:1", content=value) == -1
        assert op.origin == ""


def test_an_sdk_set_up_later_counts() -> None:
    code = """
import time
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from memtrace_otel import operation
early = trace.get_tracer("mine")
default = operation(kind="extract", system="t", output="fact")(lambda: "fact")
given = operation(kind="extract", system="t", output="fact", tracer=early)(lambda: "fact")
plain = operation(kind="extract", system="t")(lambda: "fact")
default(), given(), plain()
exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
trace.set_tracer_provider(provider)
time.sleep(0.001)
default(), given(), plain()
with operation(kind="extract", system="t"):
    pass
print(len(exporter.get_finished_spans()))
"""
    for disabled, spans in (("false", "4"), ("true", "0")):
        environment = {"OTEL_SDK_DISABLED": disabled}
        done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
        assert done.stdout.strip() == spans


def test_an_origin_names_the_span_of_the_version(recording: Recording) -> None:
    with operation(kind="create", system="t", scope=SCOPE, tracer=recording.tracer) as op:
        op.wrote("memory:1", action="ADD", content="x")
    [span] = recording.spans()
    assert span.context is not None
    assert op.origin == make_origin(f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}")
