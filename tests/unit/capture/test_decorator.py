"""Decorated functions: records of calls, coroutines and streams; results and errors of the program stay the same."""

from __future__ import annotations

import asyncio
import gc
import inspect
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Iterator
from contextlib import nullcontext
from contextvars import copy_context
from functools import partial
from typing import cast

import pytest
from opentelemetry import trace
from opentelemetry.instrumentation.utils import suppress_instrumentation
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import SpanKind, StatusCode

from memtrace_otel import semconv
from memtrace_otel.capture import current_operation, drops, operation, variable_ref
from memtrace_otel.capture import decorator as module
from memtrace_otel.capture.finalizers import report_waiting
from memtrace_otel.model import make_origin
from tests.conftest import Recording


def attribute(span: ReadableSpan, name: str) -> list[object]:
    assert span.attributes is not None
    return list(span.attributes.get(name, ()))  # type: ignore[arg-type]


def origin_of(span: ReadableSpan) -> str:
    assert span.context is not None
    return make_origin(f"{span.context.trace_id:032x}", f"{span.context.span_id:016x}")


def test_streamed_answer_is_one_output(recording: Recording) -> None:
    @operation(kind="respond", system="t", tracer=recording.tracer, inputs={"question": "query"}, output="answer")
    def answer(question: str) -> Iterator[str]:
        yield "In "
        yield "Lisbon"

    stream = answer("Where?")
    assert next(stream) == "In "
    assert not recording.spans()
    assert current_operation() is None  # the reader of a stream is not inside the operation
    assert not trace.get_current_span().is_recording()
    assert list(stream) == ["Lisbon"]
    [span] = recording.spans()
    assert attribute(span, semconv.INPUTS) == [variable_ref("query", "Where?")]
    assert attribute(span, semconv.OUTPUTS) == [variable_ref("answer", "In Lisbon")]
    assert attribute(span, semconv.OUTPUTS_SIZES) == [len("In Lisbon")]


def test_each_item_of_a_generator_is_an_output(recording: Recording) -> None:
    @operation(kind="extract", system="t", tracer=recording.tracer, output="fact")
    def facts() -> Iterator[str]:
        yield "a"
        with operation(kind="other", system="t", tracer=recording.tracer):
            yield "b"

    assert list(facts()) == ["a", "b"]
    outer, inner = recording.spans()
    assert attribute(outer, semconv.OUTPUTS) == [variable_ref("fact", "a"), variable_ref("fact", "b")]
    assert inner.parent is not None
    assert outer.context is not None
    assert inner.parent.span_id == outer.context.span_id


def test_open_spans_of_a_generator_are_not_current_for_its_reader(recording: Recording) -> None:
    def body() -> Iterator[int]:
        with recording.tracer.start_as_current_span("inner"):
            yield 1
            with operation(kind="extract", system="t", tracer=recording.tracer) as nested:
                yield 2
                assert current_operation() is nested
                with recording.tracer.start_as_current_span("child"):
                    yield 3
            with recording.tracer.start_as_current_span("second"):
                pass
        with recording.tracer.start_as_current_span("last"):
            pass

    def parents(work: Callable[[], Iterator[int]]) -> dict[str, str]:
        recording.clear()
        with recording.tracer.start_as_current_span("reader") as reader:
            for _ in work():
                if work is not body:
                    assert trace.get_current_span() is reader
        names = {span.context.span_id: span.name for span in recording.spans() if span.context}
        return {span.name: names[span.parent.span_id] for span in recording.spans() if span.parent}

    own = parents(body)
    decorated = parents(operation(kind="other", system="t", tracer=recording.tracer)(body))
    assert own == {"inner": "reader", "memtrace.extract": "inner", "child": "memtrace.extract"} | {
        "second": "inner",
        "last": "reader",
    }
    assert decorated == {**own, "inner": "memtrace.other", "last": "memtrace.other", "memtrace.other": "reader"}


def test_a_generator_keeps_send_throw_close_and_its_return_value(recording: Recording) -> None:
    closed: list[bool] = []

    @operation(kind="other", system="t", tracer=recording.tracer, output="fact")
    def talk() -> Generator[str, str, int]:
        try:
            got = yield "first"
            try:
                yield got
            except KeyError:
                yield "caught"
            return 7
        finally:
            closed.append(True)

    assert inspect.isgeneratorfunction(talk)
    running = talk()
    assert inspect.isgenerator(running)
    assert (next(running), running.send("sent"), running.throw(KeyError())) == ("first", "sent", "caught")
    with pytest.raises(StopIteration) as stopped:
        next(running)
    assert stopped.value.value == 7
    closing = talk()
    next(closing)
    closing.close()
    assert closed == [True, True]
    assert [len(attribute(span, semconv.OUTPUTS)) for span in recording.spans()] == [3, 1]
    assert all(span.status.status_code is StatusCode.UNSET for span in recording.spans())


def test_an_error_in_a_stream_passes_and_what_came_before_is_kept(recording: Recording) -> None:
    error = LookupError("gone")

    @operation(kind="respond", system="t", tracer=recording.tracer, output="answer")
    def answer() -> Iterator[str]:
        yield "half"
        raise error

    with pytest.raises(LookupError) as caught:
        list(answer())
    assert caught.value is error
    [span] = recording.spans()
    assert span.status.status_code is StatusCode.ERROR
    assert attribute(span, semconv.OUTPUTS) == [variable_ref("answer", "half")]


@pytest.mark.parametrize("recorded", [True, False])
async def test_async_stream_passes_on_sent_values_and_thrown_errors(recording: Recording, recorded: bool) -> None:
    with nullcontext() if recorded else suppress_instrumentation():

        @operation(kind="respond", system="t", tracer=recording.tracer, output="answer")
        async def answer() -> AsyncGenerator[str, str]:
            said = yield "Who?"
            try:
                yield said
            except ValueError:
                yield "Never mind."

        assert inspect.isasyncgenfunction(answer)
        stream = answer()
        assert inspect.isasyncgen(stream)
        assert [await anext(stream), await stream.asend("Ana"), await stream.athrow(ValueError())] == [
            *("Who?", "Ana", "Never mind.")
        ]
        await stream.aclose()
    assert len(recording.spans()) == recorded


async def test_an_async_stream_is_recorded_whole(recording: Recording) -> None:
    inside: list[bool] = []

    @operation(kind="respond", system="t", tracer=recording.tracer, output="answer")
    async def answer(parts: int) -> AsyncIterator[str]:
        for n in range(parts):
            await asyncio.sleep(0)
            inside.append(trace.get_current_span().is_recording())
            yield str(n)

    assert inspect.isasyncgenfunction(answer)
    assert [part async for part in answer(3)] == ["0", "1", "2"]
    assert inside == [True] * 3
    assert not trace.get_current_span().is_recording()
    stream = answer(9)
    assert await anext(stream) == "0"
    await stream.aclose()  # type: ignore[attr-defined]
    whole, part = recording.spans()
    assert attribute(whole, semconv.OUTPUTS) == [variable_ref("answer", "012")]
    assert attribute(part, semconv.OUTPUTS) == [variable_ref("answer", "0")]
    assert part.status.status_code is StatusCode.UNSET


def test_an_abandoned_stream_is_recorded_when_it_is_collected(recording: Recording) -> None:
    @operation(kind="respond", system="t", tracer=recording.tracer, output="answer")
    def answer() -> Iterator[str]:
        yield "a"
        yield "b"

    next(answer())
    gc.collect()
    assert attribute(recording.spans()[0], semconv.OUTPUTS) == [variable_ref("answer", "a")]


async def test_a_stream_that_is_cancelled_while_it_works_has_failed(recording: Recording) -> None:
    @operation(kind="respond", system="t", tracer=recording.tracer, output="answer")
    async def answer() -> AsyncIterator[str]:
        yield "Lis"
        await asyncio.sleep(60)

    async def read() -> None:
        async for _ in answer():
            asyncio.get_running_loop().call_soon(reading.cancel)

    reading = asyncio.ensure_future(read())
    with pytest.raises(asyncio.CancelledError):
        await reading
    [span] = recording.spans()
    assert (span.status.status_code, attribute(span, semconv.OUTPUTS_SIZES)) == (StatusCode.ERROR, [3])


@pytest.mark.parametrize("left", [True, False])
def test_an_answer_that_is_not_read_to_its_end_is_cut(recording: Recording, left: bool) -> None:
    @operation(kind="respond", system="t", tracer=recording.tracer, output="answer")
    def answer() -> Iterator[str]:
        yield from ("The door code is ", "4711.")

    stream = cast("Generator[str]", answer())
    assert next(stream)
    if left:
        stream.close()
    else:
        assert list(stream) == ["4711."]
    [span] = recording.spans()
    assert ("truncated" in attribute(span, semconv.INCOMPLETE)) == left


def test_an_endless_stream_fills_no_memory(recording: Recording, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_MAX_YIELDED", 5)
    monkeypatch.setattr(module, "_MAX_STREAMED", 5)

    @operation(kind="respond", system="t", tracer=recording.tracer, output="answer")
    def answer() -> Iterator[str]:
        yield from "abcdefgh"

    @operation(kind="extract", system="t", tracer=recording.tracer, output="fact")
    def facts() -> Iterator[str]:
        yield from "abcdefgh"

    before = drops["variables"]
    assert "".join(answer()) == "".join(facts()) == "abcdefgh"
    streamed, extracted = recording.spans()
    assert attribute(streamed, semconv.OUTPUTS_SIZES) == [5]
    assert "truncated" in attribute(streamed, semconv.INCOMPLETE)
    assert len(attribute(extracted, semconv.OUTPUTS)) == 5
    assert "budget" in attribute(extracted, semconv.INCOMPLETE)
    assert drops["variables"] - before == 3


def test_purpose_is_an_attribute_of_the_span(recording: Recording) -> None:
    @operation(kind="update", system="t", tracer=recording.tracer, purpose="message_buffer_update")
    def push() -> None: ...

    push()
    with operation(kind="other", system="t", tracer=recording.tracer, purpose="finalize"):
        pass
    purposes = [(span.attributes or {})[semconv.OP_PURPOSE] for span in recording.spans()]
    assert purposes == ["message_buffer_update", "finalize"]


async def test_awaitable_or_iterator_of_a_plain_function_is_no_output(recording: Recording) -> None:
    async def reply() -> str:
        return "In Lisbon"

    async def stream() -> AsyncIterator[str]:
        yield "In Lisbon"

    before = drops["misuse:output"]
    answer = operation("chat", kind="respond", system="t", tracer=recording.tracer, output="answer")
    assert await answer(lambda: reply())() == "In Lisbon"
    assert [part async for part in answer(lambda: stream())()] == ["In Lisbon"]
    assert list(answer(lambda: iter("ab"))()) == ["a", "b"]
    for span in recording.spans():
        assert attribute(span, semconv.OUTPUTS) == []
        assert attribute(span, semconv.INCOMPLETE) == ["unserialisable"]
    assert drops["misuse:output"] - before == 3


def test_unknown_parameter_is_logged_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    drops["misuse:inputs"] = 0

    def extract(message: str) -> str:
        return message

    operation(kind="extract", system="t", inputs={"mesage": "message"}, output="fact")(extract)
    operation(kind="extract", system="t", inputs={"message": "message"}, output="fact", each="line")(extract)
    operation(kind="extract", system="t", inputs={"message": "message"}, output="fact", each="message")(extract)
    assert drops["misuse:inputs"] == 2
    (told,) = caplog.messages
    assert "extract has no parameter mesage" in told
    assert "it has message" in told


def test_inputs_of_a_with_block_are_logged_and_counted(recording: Recording, caplog: pytest.LogCaptureFixture) -> None:
    drops["misuse:inputs"] = 0
    for _ in range(2):
        with operation(kind="extract", system="t", tracer=recording.tracer, inputs={"text": "message"}, output="fact"):
            pass
    assert drops["misuse:inputs"] == len(recording.spans()) == 2
    assert [record.levelname for record in caplog.records] == ["WARNING"]


def test_a_callable_without_a_signature_is_called_as_it_is(recording: Recording) -> None:
    newest = operation(kind="other", system="t", tracer=recording.tracer, inputs={"items": "fact"}, output="fact")(max)
    assert newest("a", "b") == "b"
    assert attribute(recording.spans()[0], semconv.OUTPUTS) == [variable_ref("fact", "b")]


def test_wrong_arguments_raise_the_error_of_the_function(recording: Recording) -> None:
    @operation(kind="other", system="t", tracer=recording.tracer, inputs={"text": "message"})
    def work(text: str) -> str:
        return text

    with pytest.raises(TypeError, match="positional argument"):
        work("a", "b")  # type: ignore[call-arg]
    assert partial(work, text="a")() == "a"
    assert len(recording.spans()) == 2


def test_call_without_a_scope_takes_the_scope_of_the_outer_operation(recording: Recording) -> None:
    def traced(system: str, scope: str = "") -> Callable[[str], str]:
        decorate = operation(
            kind="decide", system=system, scope=scope, tracer=recording.tracer, inputs={"record": "memory"}
        )
        return decorate(lambda record: record)  # type: ignore[return-value]

    with operation("update_memory", kind="update", system="notes", scope="5c09e5c09e5c09e5", tracer=recording.tracer):
        traced("notes")("Ana")
        traced("notes", "0" * 16)("Ana")
        traced("other")("Ana")
    traced("notes")("Ana")
    scopes = [(span.attributes or {}).get(semconv.SCOPE) for span in recording.spans() if span.parent]
    assert scopes == ["5c09e5c09e5c09e5", "0" * 16, None]
    assert semconv.SCOPE not in (recording.spans()[-1].attributes or {})


def test_a_step_of_an_operation_finds_the_writer_of_what_it_reads(recording: Recording) -> None:
    @operation(kind="decide", system="notes", tracer=recording.tracer, inputs={"record": "memory"})
    def decide(record: str) -> str:
        return record

    scope = "5c09e5c09e5c09e5"
    with operation("update_memory", kind="update", system="notes", scope=scope, tracer=recording.tracer) as op:
        op.wrote(variable_ref("memory", "Ana"), action="ADD", content="Ana")
        decide("Ana")
    [step] = [span for span in recording.spans() if span.parent]
    assert attribute(step, semconv.INPUTS_ORIGINS) == [op.origin]
    assert "unknown_origin" not in attribute(step, semconv.INCOMPLETE)


@pytest.mark.parametrize(("one_trace", "around"), [(True, True), (False, True), (False, False)])
def test_an_equal_text_comes_from_the_readers_own_turn(recording: Recording, *, one_trace: bool, around: bool) -> None:
    tracer = recording.tracer

    @operation(kind="extract", system="notes", tracer=tracer, inputs={"message": "message"}, output="fact")
    def extract(message: str) -> list[str]:
        return ["likes tea"]

    @operation(kind="create", system="notes", tracer=tracer, inputs={"fact": "fact"}, output="memory", action="ADD")
    def store(fact: str) -> str:
        return f"record: {fact}"

    def turn(user: str) -> Generator[None, None, None]:
        opened = operation(kind="ingest", system="notes", tracer=tracer) if around else nullcontext()
        with opened, tracer.start_as_current_span(f"turn of {user}"):
            [fact] = extract(f"I am {user}, I like tea")
            yield
            store(fact)

    with tracer.start_as_current_span("batch") if one_trace else nullcontext():
        contexts = [copy_context(), copy_context()]
        turns = [turn("Ana"), turn("Bo")]
        for _ in range(2):
            for context, running in zip(contexts, turns, strict=True):
                context.run(next, running, None)
    made = recording.named("memtrace.extract")
    stored = recording.named("memtrace.create")
    assert [attribute(span, semconv.INPUTS_ORIGINS) for span in stored] == [[origin_of(span)] for span in made]


def test_methods_of_classes_are_wrapped_from_both_sides(recording: Recording) -> None:
    extract = operation(kind="extract", system="t", inputs={"text": "message"}, output="fact", tracer=recording.tracer)

    class Memory:
        @extract
        @classmethod
        def of_class(cls, text: str) -> str:
            return f"{cls.__name__}: {text}"

        @classmethod
        @extract
        def of_class_below(cls, text: str) -> str:
            return f"{cls.__name__}: {text}"

        @extract
        @staticmethod
        def static(text: str) -> str:
            return text.upper()

    assert [Memory.of_class("a"), Memory().of_class_below("b"), Memory().static("c")] == ["Memory: a", "Memory: b", "C"]
    made = [dict(span.attributes or {}) for span in recording.named("memtrace.extract")]
    assert [attributes[semconv.INPUTS] for attributes in made] == [(variable_ref("message", x),) for x in "abc"]
    assert [attributes[semconv.OUTPUTS] for attributes in made] == [
        (variable_ref("fact", x),) for x in ("Memory: a", "Memory: b", "C")
    ]


def test_options_of_the_decorator_reach_the_span(recording: Recording) -> None:
    @operation(
        "update_memory",
        kind="update",
        system="t",
        scope="s",
        purpose="why",
        tracer=recording.tracer,
        span_kind=SpanKind.CLIENT,
        attributes={"a": 1},
        inputs={"text": "message"},
        output="memory",
        action="UPDATE",
    )
    def update(text: str) -> str:
        return text.upper()

    assert update("x") == "X"
    [span] = recording.spans()
    assert (span.name, span.kind) == ("update_memory", SpanKind.CLIENT)
    assert {"a": 1, semconv.SCOPE: "s", semconv.OP_PURPOSE: "why"}.items() <= dict(span.attributes or {}).items()
    assert attribute(span, semconv.INPUTS) == [variable_ref("message", "x")]
    assert attribute(span, semconv.OUTPUTS_ACTIONS) == ["UPDATE"]


@pytest.mark.parametrize("held", [True, False])
@pytest.mark.parametrize("waits", [True, False])
def test_stream_that_the_event_loop_closes_has_not_failed(recording: Recording, *, held: bool, waits: bool) -> None:
    complaints: list[object] = []
    streams: list[object] = []

    @operation(kind="respond", system="t", tracer=recording.tracer, output="answer")
    async def answer() -> AsyncIterator[str]:
        try:
            yield "Lis"
            yield "bon"
        finally:
            if waits:
                await asyncio.sleep(0.01)

    async def read_one() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _, what: complaints.append(what))
        stream = answer()
        streams.extend([stream] if held else [])
        async for _ in stream:
            break

    asyncio.run(read_one())
    streams.clear()
    report_waiting()
    [span] = recording.spans()
    assert (span.status.status_code, attribute(span, semconv.OUTPUTS_SIZES)) == (StatusCode.UNSET, [3])
    assert complaints == []


def test_callable_without_a_name_is_recorded_by_its_type(recording: Recording) -> None:
    def ask(key: str, question: str) -> str:
        return question + key

    decorated = operation(kind="respond", system="t", tracer=recording.tracer)(partial(ask, "sk-secret"))
    assert decorated("?") == "?sk-secret"
    [span] = recording.spans()
    assert (span.attributes or {})[semconv.CODE_FUNCTION_NAME] == "functools.partial"
    assert "secret" not in str(span.attributes)
