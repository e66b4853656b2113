"""The wrapper that runs steps, on plain functions."""

from __future__ import annotations

import asyncio
import contextvars
import threading
from collections.abc import Callable
from typing import Any

import pytest
import wrapt
from opentelemetry import trace
from opentelemetry.trace import StatusCode

from memtrace_otel import semconv
from memtrace_otel.capture import current_operation, drops
from memtrace_otel.instrumentation.base import ContextThreads, Patches
from memtrace_otel.instrumentation.steps import Call, Step, StepFunction, observed
from memtrace_otel.semconv import OpKind
from tests.conftest import Recording

PLACE: contextvars.ContextVar[str] = contextvars.ContextVar("place", default="outside")


def wrap(function: Callable[..., Any], step: StepFunction, recording: Recording) -> Callable[..., Any]:
    return wrapt.FunctionWrapper(function, observed(step, Patches(recording.tracer, "test")))


def noting(call: Call) -> Step:
    operation = call.open(None, OpKind.OTHER, scope="s")
    call.carry(PLACE, "inside")
    operation.read("fact:in", content=str(call.arguments().get("value")))
    result = yield
    operation.wrote("fact:out", content=str(result))


def test_a_step_sees_arguments_result_and_carries_context(recording: Recording) -> None:
    def double(value: int, factor: int = 2, **kwargs: Any) -> tuple[int, str]:
        return value * factor, PLACE.get()

    assert wrap(double, noting, recording)(4) == (8, "inside")
    assert PLACE.get() == "outside"
    (span,) = recording.spans()
    assert span.name == "memtrace.other"
    assert span.attributes[semconv.OUTPUTS] == ("fact:out",)
    assert span.attributes[semconv.CODE_FUNCTION_NAME].endswith("double")


async def test_coroutines_run_inside_their_step(recording: Recording) -> None:
    async def double(value: int) -> tuple[int, str]:
        await asyncio.sleep(0)
        return value * 2, PLACE.get()

    calls = [wrap(double, noting, recording)(n) for n in range(3)]
    assert await asyncio.gather(*calls) == [(n * 2, "inside") for n in range(3)]
    assert current_operation() is None
    assert len(recording.spans()) == 3


@pytest.mark.parametrize("error", [ValueError("x"), KeyboardInterrupt(), SystemExit(3)])
def test_an_exception_of_the_program_passes_and_ends_the_span(recording: Recording, error: BaseException) -> None:
    def fail(value: int) -> None:
        raise error

    with pytest.raises(type(error)) as raised:
        wrap(fail, noting, recording)(1)
    assert raised.value is error
    (span,) = recording.spans()
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes[semconv.ERROR_TYPE] == type(error).__qualname__
    assert PLACE.get() == "outside"
    assert not trace.get_current_span().get_span_context().is_valid


def test_invalid_arguments_raise_the_original_error(recording: Recording) -> None:
    def double(value: int) -> int:
        return value * 2

    with pytest.raises(TypeError, match="unexpected keyword") as raised:
        wrap(double, noting, recording)(1, colour="red")
    with pytest.raises(TypeError) as plain:
        double(1, colour="red")  # type: ignore[call-arg]
    assert str(raised.value) == str(plain.value)


def before(call: Call) -> Step:
    call.open(None, OpKind.OTHER, scope="s")
    raise ZeroDivisionError
    yield


def after(call: Call) -> Step:
    call.open(None, OpKind.OTHER, scope="s")
    yield
    raise ZeroDivisionError


def twice(call: Call) -> Step:
    call.open(None, OpKind.OTHER, scope="s")
    yield
    yield


@pytest.mark.parametrize("step", [before, after])
def test_an_exception_in_a_step_does_not_reach_the_program(recording: Recording, step: StepFunction) -> None:
    reason = f"error:test.{step.__name__}"
    counted = drops[reason]
    assert wrap(lambda: 7, step, recording)() == 7
    (span,) = recording.spans()
    assert span.status.status_code is StatusCode.UNSET
    assert span.attributes[semconv.INCOMPLETE] == ("guard",)
    assert drops[reason] == counted + 1


def test_a_step_may_record_nothing(recording: Recording) -> None:
    def nothing(call: Call) -> Step:
        return
        yield

    assert wrap(lambda: 7, nothing, recording)() == 7
    assert recording.spans() == []


def test_sibling_operations_have_one_parent(recording: Recording) -> None:
    def three(call: Call) -> Step:
        for _ in range(3):
            call.open(None, OpKind.CREATE, scope="s", current=False)
        yield

    with recording.tracer.start_as_current_span("outer") as outer:
        wrap(lambda: None, three, recording)()
    children = recording.named("memtrace.create")
    assert {span.parent.span_id for span in children if span.parent} == {outer.get_span_context().span_id}
    assert len(children) == 3


def test_jobs_of_a_pool_run_in_the_context_of_their_submitter() -> None:
    token = PLACE.set("submitter")
    try:
        with ContextThreads() as pool:
            job = pool.submit(lambda: (PLACE.get(), threading.current_thread() is threading.main_thread()))
        assert job.result() == ("submitter", False)
        with ContextThreads(max_workers=2) as pool:
            assert list(pool.map(lambda _: PLACE.get(), range(3))) == ["submitter"] * 3
    finally:
        PLACE.reset(token)


def test_an_interrupt_in_a_step_ends_its_operations(recording: Recording) -> None:
    def interrupted(call: Call[Any]) -> Step:
        call.open(None, OpKind.OTHER, scope="s")
        raise KeyboardInterrupt
        yield

    with pytest.raises(KeyboardInterrupt):
        wrap(lambda: None, interrupted, recording)()
    assert current_operation() is None
    assert len(recording.spans()) == 1


def test_the_outermost_method_of_a_group_is_recorded(recording: Recording) -> None:
    def adding(call: Call) -> Step:
        if call.enter("add"):
            call.open(None, OpKind.OTHER, scope="s")
            yield

    class Store:
        def add(self) -> None:
            self.add_texts()

        def add_texts(self) -> None:
            pass

    patches = Patches(recording.tracer, "test")
    patches.wrap_all(Store, {"add": adding, "add_texts": adding, "absent": adding})
    Store().add()
    Store().add_texts()
    assert [str(span.attributes[semconv.CODE_FUNCTION_NAME]).split(".")[-1] for span in recording.spans()] == [
        "add",
        "add_texts",
    ]
    assert patches.wrapped() == [(Store, "add"), (Store, "add_texts")]
    patches.remove()
    assert not isinstance(vars(Store)["add"], wrapt.FunctionWrapper)
