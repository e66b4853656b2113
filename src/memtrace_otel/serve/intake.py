"""The `Intake` of a server: checks a request, commits it to the inbox, refuses while the inbox is behind."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable

from memtrace_otel.otlp.receiver import (
    Acknowledgement,
    BusyError,
    Cause,
    Limits,
    Signal,
    check_logs,
    check_traces,
)
from memtrace_otel.otlp.receiver.requests import WHOLE_BYTES
from memtrace_otel.serve.group_commit import GroupCommit
from memtrace_otel.serve.metrics import Metrics
from memtrace_otel.sources import StoreError

_logger = logging.getLogger(__name__)
RETRY_SECONDS = 5
_CHECKS = {Signal.TRACES: check_traces, Signal.LOGS: check_logs}


class Backlog:
    """Bytes that wait in the inbox, against their bound: what was measured last and what was added since.

    `measure` returns the bytes and when the oldest came (ns since the epoch, 0 when nothing waits).
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
        """How long the oldest waits, 0 when nothing does."""
        return max(0.0, (time.time_ns() - self._oldest) / 1e9) if self._oldest else 0.0

    @property
    def is_full(self) -> bool:
        """Whether nothing more may be taken."""
        return self.bytes >= self.bound

    def add(self, size: int) -> None:
        """Count a body that was committed."""
        self._added += size

    def measure(self) -> None:
        """Look again. What is added meanwhile may count twice, until the next time."""
        added = self._added
        self._measured, self._oldest = self._measure()
        self._added -= added


class StoreIntake:
    """Takes requests into a store."""

    def __init__(self, commits: GroupCommit, backlog: Backlog, limits: Limits, metrics: Metrics) -> None:
        self._commits = commits
        self._backlog = backlog
        self._limits = limits
        self._metrics = metrics

    async def accept(self, body: bytes, signal: Signal) -> Acknowledgement:
        """Keep what can be kept of a request; see `Intake`."""
        if self._backlog.is_full:
            raise BusyError(f"{self._backlog.bytes} bytes wait to be decoded", RETRY_SECONDS, Cause.BEHIND)
        if len(body) <= WHOLE_BYTES:
            checked = _CHECKS[signal](body, self._limits)
        else:  # takes long: the event loop belongs to others meanwhile
            checked = await asyncio.to_thread(_CHECKS[signal], body, self._limits)
        if checked.spans:
            self._backlog.add(len(checked.body))
            try:
                await self._commits.add(checked.body)
            except StoreError as error:
                _logger.warning("a request could not be kept: %s", error)
                raise BusyError("the database cannot be written", RETRY_SECONDS, Cause.STORE) from None
        self._metrics.acknowledged(checked.spans, len(body), checked.rejected)
        return Acknowledgement(checked.rejected, checked.reason)
