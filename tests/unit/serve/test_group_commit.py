"""Several requests, one transaction."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence

import pytest

from memtrace_otel.serve.group_commit import GroupCommit


async def test_what_arrives_during_a_commit_goes_together_into_the_next() -> None:
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


async def test_a_failed_commit_is_the_failure_of_its_group_alone() -> None:
    def commit(bodies: Sequence[bytes]) -> None:
        if b"bad" in bodies:
            raise OSError("disk full")

    commits = GroupCommit(commit)
    assert not commits.is_failing
    with pytest.raises(OSError, match="disk full"):
        await commits.add(b"bad")
    assert commits.is_failing
    await commits.add(b"good")
    assert not commits.is_failing
    await asyncio.to_thread(commits.close)


async def test_a_failure_that_nobody_tried_again_is_no_news_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who asks whether it works may be the one who sends elsewhere until then."""

    def commit(bodies: Sequence[bytes]) -> None:
        raise OSError("disk full")

    commits = GroupCommit(commit)
    with pytest.raises(OSError, match="disk full"):
        await commits.add(b"bad")
    assert commits.is_failing
    monkeypatch.setattr("memtrace_otel.serve.group_commit._FAILING_SECONDS", 0.0)
    assert not commits.is_failing
    await asyncio.to_thread(commits.close)


async def test_closing_commits_what_was_added_and_a_client_that_went_away_is_no_harm() -> None:
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
