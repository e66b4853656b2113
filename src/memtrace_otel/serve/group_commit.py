"""One transaction for all requests that arrived while the last one was being synced."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue
from typing import Any

_MOST_BODIES = 64
_MOST_BYTES = 32 << 20
_FAILING_SECONDS = 60.0
"""Senders come again within that time. Where none does, as one who is told to look elsewhere, nothing is known."""

_Waiting = tuple[bytes, "asyncio.Future[None]"]


class GroupCommit:
    """Hands bodies of many connections to `commit`, several at a time, on a thread of its own."""

    def __init__(self, commit: Callable[[Sequence[bytes]], None]) -> None:
        self._commit = commit
        self._failed: float | None = None
        self._queue: SimpleQueue[_Waiting | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="memtrace-commit", daemon=True)
        self._thread.start()

    @property
    def is_failing(self) -> bool:
        """Whether the last commit failed, within the last minute."""
        failed = self._failed
        return failed is not None and time.monotonic() < failed + _FAILING_SECONDS

    async def add(self, body: bytes) -> None:
        """Return when `body` is committed. Raises what `commit` raised for its group."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.put((body, future))
        await asyncio.shield(future)  # a client that goes away takes nothing back

    def close(self) -> None:
        """Commit what was added and end."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            group, last = self._group(first)
            try:
                self._commit([body for body, _ in group])
                error = None
            except Exception as raised:
                error = raised
            self._failed = time.monotonic() if error else None
            for _, future in group:
                future.get_loop().call_soon_threadsafe(_settle, future, error)
            if last:
                return

    def _group(self, first: _Waiting) -> tuple[list[_Waiting], bool]:
        group, size = [first], len(first[0])
        while len(group) < _MOST_BODIES and size < _MOST_BYTES:
            try:
                waiting = self._queue.get_nowait()
            except Empty:
                break
            if waiting is None:
                return group, True
            group.append(waiting)
            size += len(waiting[0])
        return group, False


def _settle(future: asyncio.Future[Any], error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)
