"""What a signal handler of the program raises while our code runs is the program's."""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import cast

import pytest

from memtrace_otel.capture import drops, guard, guarded, operation, origins
from memtrace_otel.capture.turn import _turns  # pyright: ignore[reportPrivateUsage]
from tests.conftest import Recording


class TimeLimit(Exception):
    """Of the program."""


class Slow(dict[str, str]):
    """The signal comes while its text is made."""

    def items(self):  # type: ignore[no-untyped-def]
        signal.raise_signal(signal.SIGALRM)
        return super().items()


class AskingForItsCaller(dict[str, str]):
    """As a program's own code does that logs or warns about its caller."""

    def items(self):  # type: ignore[no-untyped-def]
        caller = sys._getframe(1)  # pyright: ignore[reportPrivateUsage]
        raise TimeLimit(caller.f_code.co_name)


class Stopping:
    """A handler that is an object, and one that is a method of it."""

    def __call__(self, *_: object) -> None:
        raise TimeLimit

    def stop(self, number: int, frame: object) -> None:
        del frame
        raise TimeLimit


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TimeLimit

    before = signal.signal(signal.SIGALRM, stop)
    yield
    signal.signal(signal.SIGALRM, before)


def test_a_handler_that_remembers_something_waits_for_no_lock_of_its_own_thread(recording: Recording) -> None:
    """The signal may come while we hold any of them."""

    def interrupted() -> None:
        with origins()._lock, _turns._lock:  # pyright: ignore[reportPrivateUsage]
            handle()

    def handle() -> None:
        with operation("search_memory", kind="retrieve", system="t", tracer=recording.tracer) as op:
            op.read("memory:1", role="hit", content="Ana likes tea")
            op.wrote("memory:1", action="UPDATE", content="Ana likes mate")

    program = threading.Thread(target=interrupted, daemon=True)
    program.start()
    program.join(30)
    assert len(recording.spans()) == 1


def test_an_operation_lets_it_through_and_ends(recording: Recording) -> None:
    with (
        pytest.raises(TimeLimit),
        operation("create_memory", kind="create", system="t", tracer=recording.tracer) as op,
    ):
        op.wrote("memory:1", content=Slow(a="b"))
    [span] = recording.spans()
    assert (span.attributes or {})["error.type"] == "TimeLimit"


def test_guards_let_it_through_and_nothing_is_counted() -> None:
    before = dict(drops)
    with pytest.raises(TimeLimit), guard("here"):
        signal.raise_signal(signal.SIGALRM)
    with pytest.raises(TimeLimit):
        guarded("there", None)(signal.raise_signal)(signal.SIGALRM)
    assert dict(drops) == before


@pytest.mark.parametrize("own", [Stopping(), Stopping().stop, partial(Stopping.stop, Stopping())])
def test_any_handler_written_in_python_is_known(own: Callable[[int, object], None]) -> None:
    signal.signal(signal.SIGALRM, own)
    with pytest.raises(TimeLimit), guard("here"):
        signal.raise_signal(signal.SIGALRM)


def test_what_a_value_of_the_program_raises_is_swallowed(recording: Recording) -> None:
    with operation("create_memory", kind="create", system="t", tracer=recording.tracer) as op:
        op.wrote("memory:1", content=AskingForItsCaller(a="b"))
    [span] = recording.spans()
    assert "error.type" not in (span.attributes or {})


def test_another_thread_runs_no_handler() -> None:
    swallowed: list[bool] = []

    def call_by_hand() -> None:
        stop = cast("Callable[[int, object], None]", signal.getsignal(signal.SIGALRM))
        with guard("here"):
            stop(signal.SIGALRM, sys._getframe())  # pyright: ignore[reportPrivateUsage]
        swallowed.append(True)

    thread = threading.Thread(target=call_by_hand)
    thread.start()
    thread.join()
    assert swallowed


def test_the_same_error_of_our_own_is_swallowed() -> None:
    def fail(frame: object) -> None:
        raise TimeLimit

    with guard("here"):
        fail(None)
