"""The intake of a server: answers, counters, group commit."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Sequence

import pytest

from memtrace_otel.otlp import encode_request
from memtrace_otel.otlp.receiver import Acknowledgement, BusyError, Cause, Limits, RequestError, Signal
from memtrace_otel.serve.intake import Backlog, GroupCommit, StoreIntake
from memtrace_otel.serve.metrics import Metrics
from memtrace_otel.sources import SourceError
from memtrace_otel.testing import contract_span
from tests.unit.serve.test_metrics import value

REQUESTS = "memtrace_serve_acknowledged_requests_total"
BODY = encode_request([contract_span(1, 1), contract_span(1, 2)])


class Disk:
    """Takes bodies, or is full."""

    def __init__(self) -> None:
        self.bodies: list[bytes] = []
        self.full = False

    def commit(self, bodies: Sequence[bytes]) -> None:
        if self.full:
            raise SourceError("spans.db", "database or disk is full")
        self.bodies += bodies

    def waiting(self) -> tuple[int, int]:
        return sum(map(len, self.bodies)), time.time_ns() - 10**10 if self.bodies else 0


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def metrics() -> Metrics:
    return Metrics()


@pytest.fixture
async def intake(disk: Disk, metrics: Metrics) -> AsyncIterator[StoreIntake]:
    commits = GroupCommit(disk.commit)
    yield StoreIntake(commits, Backlog(2 * len(BODY), disk.waiting), Limits(1 << 20), metrics)
    await asyncio.to_thread(commits.close)


async def test_an_acknowledged_request_was_committed(intake: StoreIntake, disk: Disk, metrics: Metrics) -> None:
    assert await intake.accept(BODY, Signal.TRACES) == Acknowledgement()
    assert disk.bodies == [BODY]
    assert [value(metrics, f"memtrace_serve_acknowledged_{name}_total") for name in ("requests", "spans", "bytes")] == [
        1,
        2,
        len(BODY),
    ]


async def test_an_empty_request_is_not_written(intake: StoreIntake, disk: Disk) -> None:
    assert await intake.accept(b"", Signal.TRACES) == Acknowledgement()
    assert disk.bodies == []


async def test_a_full_inbox_takes_no_request_until_it_is_decoded(disk: Disk, metrics: Metrics) -> None:
    commits, backlog = GroupCommit(disk.commit), Backlog(2 * len(BODY), disk.waiting)
    intake = StoreIntake(commits, backlog, Limits(1 << 20), metrics)
    for _ in range(2):
        await intake.accept(BODY, Signal.TRACES)
    with pytest.raises(BusyError) as caught:
        await intake.accept(BODY, Signal.TRACES)
    assert caught.value.is_overload
    assert caught.value.cause is Cause.BEHIND
    disk.bodies.clear()
    backlog.measure()
    await intake.accept(BODY, Signal.TRACES)
    assert disk.bodies == [BODY]
    await asyncio.to_thread(commits.close)


async def test_a_request_is_refused_when_the_disk_is_full(intake: StoreIntake, disk: Disk, metrics: Metrics) -> None:
    disk.full = True
    with pytest.raises(BusyError) as caught:
        await intake.accept(BODY, Signal.TRACES)
    assert not caught.value.is_overload
    assert (value(metrics, REQUESTS), caught.value.cause) == (0, Cause.STORE)


async def test_a_malformed_request_is_refused(intake: StoreIntake, metrics: Metrics) -> None:
    with pytest.raises(RequestError) as caught:
        await intake.accept(b"nonsense", Signal.LOGS)
    assert (value(metrics, REQUESTS), caught.value.cause) == (0, Cause.UNREADABLE)


async def test_the_backlog_measures_how_long_the_oldest_request_waits(disk: Disk, intake: StoreIntake) -> None:
    backlog = Backlog(2 * len(BODY), disk.waiting)
    assert backlog.seconds == 0
    await intake.accept(BODY, Signal.TRACES)
    backlog.measure()
    assert 10 <= backlog.seconds < 60
    disk.bodies.clear()
    backlog.measure()
    assert backlog.seconds == 0


async def test_requests_that_arrive_during_a_commit_share_the_next_one() -> None:
    groups: list[list[bytes]] = []
    started, free = threading.Event(), threading.Event()

    def commit(bodies: Sequence[bytes]) -> None:
        groups.append(list(bodies))
        started.set()
        free.wait(10)

    commits = GroupCommit(commit)
    first = asyncio.create_task(commits.add(b"0"))
    await asyncio.to_thread(started.wait, 10)
    others = [asyncio.create_task(commits.add(bytes([number]))) for number in range(1, 6)]
    await asyncio.sleep(0)
    assert not first.done()
    free.set()
    await asyncio.gather(first, *others)
    assert groups == [[b"0"], [bytes([number]) for number in range(1, 6)]]
    await asyncio.to_thread(commits.close)


async def test_a_failed_commit_fails_its_own_group_only() -> None:
    def commit(bodies: Sequence[bytes]) -> None:
        if b"bad" in bodies:
            raise SourceError("spans.db", "disk full")

    commits = GroupCommit(commit)
    with pytest.raises(SourceError, match="disk full"):
        await commits.add(b"bad")
    assert not await commits.is_writable()
    await commits.add(b"good")
    assert await commits.is_writable()
    await asyncio.to_thread(commits.close)


async def test_health_commits_when_no_request_did(disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("memtrace_otel.serve.intake._PROBE_SECONDS", 0.0)
    commits = GroupCommit(disk.commit)
    assert await commits.is_writable()
    assert disk.bodies == [b""]
    disk.full = True
    assert not await commits.is_writable()
    disk.full = False
    assert await commits.is_writable()
    await asyncio.to_thread(commits.close)


async def test_closing_commits_all_added_requests_also_of_clients_that_disconnected() -> None:
    committed: list[bytes] = []
    free = threading.Event()

    def commit(bodies: Sequence[bytes]) -> None:
        free.wait(10)
        committed.extend(bodies)

    commits = GroupCommit(commit)
    tasks = [asyncio.create_task(commits.add(bytes([number]))) for number in range(5)]
    await asyncio.sleep(0)
    tasks[3].cancel()
    free.set()
    await asyncio.to_thread(commits.close)
    await asyncio.gather(*tasks, return_exceptions=True)
    assert sorted(committed) == [bytes([number]) for number in range(5)]
