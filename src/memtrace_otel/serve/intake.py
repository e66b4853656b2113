"""Requests on their way to disk: checked, committed to the inbox in groups, refused while too many bytes wait there."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import Callable, Sequence
from queue import Empty, SimpleQueue

from memtrace_otel.otlp.receiver import (
    Acknowledgement,
    BusyError,
    Cause,
    Checked,
    Limits,
    Signal,
    check_logs,
    check_traces,
)
from memtrace_otel.serve.metrics import Metrics
from memtrace_otel.sources import SourceError

_logger = logging.getLogger(__name__)
RETRY_SECONDS = 5
_CHECKS = {Signal.TRACES: check_traces, Signal.LOGS: check_logs}
_SMALL_BYTES = 1 << 20
"""Bodies up to this size are parsed on the event loop; larger ones in a thread, one at a time."""
_MOST_BODIES = 64
_MOST_BYTES = 32 << 20
_PROBE_SECONDS = 1.0
"""How long the last commit, or attempt at one, says whether the database can be written."""
_COMMIT_SECONDS = 5.0
_NO_SPANS = b""
"""The empty request: decoding removes it from the inbox."""


class GroupCommit:
    """Commits bodies on a thread of its own; bodies that arrive during one transaction share the next one."""

    def __init__(self, commit: Callable[[Sequence[bytes]], None]) -> None:
        self._commit = commit
        self._tried = 0.0
        self._succeeded = False
        self._probing = asyncio.Lock()
        self._queue: SimpleQueue[tuple[bytes, asyncio.Future[None]] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="memtrace-commit", daemon=True)
        self._thread.start()

    async def add(self, body: bytes) -> None:
        """Return when `body` is committed. Raises what `commit` raised for its group."""
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._queue.put((body, future))
        await asyncio.shield(future)  # the commit goes on when the client disconnects

    async def is_writable(self) -> bool:
        """Tell whether the database takes a commit: of the last second, else by committing an empty request."""
        async with self._probing:
            if time.monotonic() > self._tried + _PROBE_SECONDS:
                try:
                    await asyncio.wait_for(self.add(_NO_SPANS), _COMMIT_SECONDS)
                except (SourceError, TimeoutError):
                    return False
            return self._succeeded

    def close(self) -> None:
        """Commit what was added and end."""
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        while (first := self._queue.get()) is not None:
            group, is_last = [first], False
            while len(group) < _MOST_BODIES and sum(len(body) for body, _ in group) < _MOST_BYTES:
                try:
                    following = self._queue.get_nowait()
                except Empty:
                    break
                if following is None:
                    is_last = True
                    break
                group.append(following)
            error = None
            try:
                self._commit([body for body, _ in group])
            except Exception as raised:
                error = raised
            self._tried, self._succeeded = time.monotonic(), error is None
            for _, future in group:
                future.get_loop().call_soon_threadsafe(_settle, future, error)
            if is_last:
                return


def _settle(future: asyncio.Future[None], error: Exception | None) -> None:
    if future.done():
        return
    if error is None:
        future.set_result(None)
    else:
        future.set_exception(error)


class Backlog:
    """Bytes in the inbox, against their bound: the last measured number and the bytes added since.

    `measure` returns the bytes and when the oldest request came (ns since the epoch, 0 for an empty inbox).
    """

    def __init__(self, bound: int, measure: Callable[[], tuple[int, int]]) -> None:
        self.bound = bound
        self._measure = measure
        self._measured, self._oldest = measure()
        self._added = 0

    @property
    def bytes(self) -> int:
        """Bytes that wait, at most."""
        return self._measured + self._added

    @property
    def seconds(self) -> float:
        """How long the oldest request waits, 0 for an empty inbox."""
        return max(0.0, (time.time_ns() - self._oldest) / 1e9) if self._oldest else 0.0

    @property
    def is_full(self) -> bool:
        """Whether the bound is reached."""
        return self.bytes >= self.bound

    def add(self, size: int) -> None:
        """Count a body that was committed."""
        self._added += size

    def measure(self) -> None:
        """Measure again. A body that is added meanwhile may count twice until the next time."""
        added = self._added
        self._measured, self._oldest = self._measure()
        self._added -= added


class StoreIntake:
    """The `Intake` that commits requests to a store."""

    def __init__(self, commits: GroupCommit, backlog: Backlog, limits: Limits, metrics: Metrics) -> None:
        self._commits = commits
        self._backlog = backlog
        self._limits = limits
        self._metrics = metrics
        self._large = asyncio.Lock()

    async def accept(self, body: bytes, signal: Signal) -> Acknowledgement:
        """Return when the good spans of the request are on disk. Raises RequestError or BusyError."""
        if self._backlog.is_full:
            raise BusyError(f"{self._backlog.bytes} bytes wait to be decoded", RETRY_SECONDS, Cause.BEHIND)
        checked = await self._checked(body, signal)
        if checked.spans:
            self._backlog.add(len(checked.body))
            try:
                await self._commits.add(checked.body)
            except SourceError as error:
                _logger.warning("a request could not be kept: %s", error)
                raise BusyError("the database cannot be written", RETRY_SECONDS, Cause.STORE) from None
        self._metrics.acknowledged(checked.spans, len(body), checked.rejected)
        return Acknowledgement(checked.rejected, checked.reason)

    async def _checked(self, body: bytes, signal: Signal) -> Checked:
        if len(body) <= _SMALL_BYTES:
            return _CHECKS[signal](body, self._limits)
        async with self._large:  # a parsed message of tiny parts takes up to 35 times the bytes of the body
            return await asyncio.to_thread(_CHECKS[signal], body, self._limits)
