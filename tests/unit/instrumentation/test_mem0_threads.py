"""What Mem0's calls know of each other is shared by threads, and a forked child goes on with it. No Mem0 needed."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from types import ModuleType

import pytest

from memtrace_otel.instrumentation.mem0 import earlier_messages, known_records
from memtrace_otel.instrumentation.mem0.earlier_messages import EarlierMessages
from memtrace_otel.instrumentation.mem0.known_records import KnownRecord, KnownRecords
from memtrace_otel.instrumentation.mem0.variables import Turn

THREADS = 8


@pytest.fixture(autouse=True)
def threads_take_turns_often() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


def at_once(work: Callable[[int], None]) -> None:
    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(work, range(THREADS)))


def test_records_are_seen_and_taken_at_once() -> None:
    records, shared = KnownRecords(), KnownRecord("memories", "of ann", "shared")
    runs = [frozenset({("run_id", str(number))}) for number in range(8)]

    def work(thread: int) -> None:
        for number in range(5000):
            records.saw(shared, runs[number % 8])
            records.saw(KnownRecord("memories", "of ann", f"{thread}.{number % 20}"), runs[1])
            if number % 5 == 0:
                records.take("memories", scope="of ann", ids=runs[0])

    at_once(work)
    assert len(records.take("memories", scope="of ann")) == THREADS * 20 + 1


def test_messages_are_saved_and_found_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(earlier_messages, "_CONVERSATIONS", 1)
    messages = EarlierMessages()

    def work(thread: int) -> None:
        for number in range(3000):
            messages.save((f"{thread}.{number}", "session"), [Turn("message:a", "a")])
            messages.find((f"{thread}.{number}", "session"), [])

    at_once(work)


@pytest.mark.parametrize("module", [known_records, earlier_messages], ids=lambda module: module.__name__)
def test_a_forked_child_has_locks_of_its_own(module: ModuleType) -> None:
    records, messages = KnownRecords(), EarlierMessages()
    with module._lock:
        if (child := os.fork()) == 0:
            signal.alarm(10)  # ends a child that waits
            records.saw(KnownRecord("memories", "of ann", "1"))
            messages.save(("of ann", "session"), [Turn("message:a", "a")])
            os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
