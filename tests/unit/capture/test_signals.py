"""What a signal handler of the program raises while our code runs is the program's."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest

from memtrace_otel.capture import drops, guard, guarded, operation
from tests.conftest import Recording


class TimeLimit(Exception):
    """Of the program."""


class Slow(dict[str, str]):
    """The signal comes while its text is made."""

    def items(self):  # type: ignore[no-untyped-def]
        signal.raise_signal(signal.SIGALRM)
        return super().items()


@pytest.fixture(autouse=True)
def handler() -> Iterator[None]:
    def stop(*_: object) -> None:
        raise TimeLimit

    before = signal.signal(signal.SIGALRM, stop)
    yield
    signal.signal(signal.SIGALRM, before)


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


def test_the_same_error_of_our_own_is_swallowed() -> None:
    def fail(frame: object) -> None:
        raise TimeLimit

    with guard("here"):
        fail(None)
