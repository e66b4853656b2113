"""What a signal handler of the program raises while our code runs is the program's."""

from __future__ import annotations

import threading

from memtrace_otel.capture import operation, origins
from memtrace_otel.capture.turn import _turns  # pyright: ignore[reportPrivateUsage]
from tests.conftest import Recording


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
