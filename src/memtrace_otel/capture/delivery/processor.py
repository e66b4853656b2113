"""The span processor that loses nothing it can keep."""

from __future__ import annotations

import atexit
import os
import sys
import time
from collections import Counter, deque
from pathlib import Path

from opentelemetry.context import Context
from opentelemetry.sdk.environment_variables import (
    OTEL_BSP_MAX_EXPORT_BATCH_SIZE,
    OTEL_BSP_MAX_QUEUE_SIZE,
    OTEL_BSP_SCHEDULE_DELAY,
)
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter

from memtrace_otel import semconv, settings
from memtrace_otel.capture import metrics
from memtrace_otel.capture.delivery.losses import Losses
from memtrace_otel.capture.delivery.sender import Sender
from memtrace_otel.capture.delivery.spool import Spool, spool_directory
from memtrace_otel.capture.delivery.worker import Delivery
from memtrace_otel.capture.fork import after_fork
from memtrace_otel.capture.guard import guard, note_error
from memtrace_otel.capture.process_exit import before_child_exits, register_with_multiprocessing, save_before_sigterm

_QUEUE_SIZE, _BATCH_SIZE, _DELAY_SECONDS = 2048, 256, 0.5
_POLL_SECONDS = 0.002
_TURN_SECONDS = 0.01
"""Who wakes up waits for a turn at the interpreter lock: two switch intervals that count as part of the wait."""
_DISK_STUCK, _DISK_SLOW = 2, 4
"""How many times `queue_size` spans wait in memory when the disk takes nothing, and when it takes them slowly."""
_EXIT_SECONDS = 30.0
_PATIENCE_SECONDS = 3.0
"""At exit an exporter that shows no progress for this long is given up; what is left goes to the spool."""

processors: set[LosslessSpanProcessor] = set()
"""The processors of this process that were not shut down, also when the program let go of their provider."""


class LosslessSpanProcessor(SpanProcessor):
    """Batches sampled spans for `exporter` and keeps them through bursts, failures and the death of the process.

    `on_end` never raises, never writes to the disk and does no more than append to a queue of `queue_size` spans. Is
    the queue full, it waits for the exporter to make room: at most `block_seconds`, once only while that makes no
    progress, and not at all in a thread that runs an event loop. After that the queue grows, while another thread
    brings the oldest spans to the spool: files below `spool_dir`, at most `spool_bytes` together. At twice its size
    `on_end` waits for that thread, `block_seconds` in all, then lets the queue grow by one more, up to four times its
    size. Only then, and at twice its size already when the disk refuses or takes more than a second over a write, a
    span is dropped: counted in the metrics, and told by a span `memtrace.other` in its trace.

    An export that fails, or takes longer than `delay_seconds`, is brought to the spool as well and repeated with
    growing pauses. What a dead process left there is sent by the next one with the same destination, so a span can
    arrive twice. Arguments that are not given come from OTEL_BSP_MAX_QUEUE_SIZE, OTEL_BSP_MAX_EXPORT_BATCH_SIZE,
    OTEL_BSP_SCHEDULE_DELAY, MEMTRACE_BLOCK_MS, MEMTRACE_SPOOL_DIR and MEMTRACE_SPOOL_BYTES.
    """

    def __init__(
        self,
        exporter: SpanExporter,
        *,
        queue_size: int | None = None,
        batch_size: int | None = None,
        delay_seconds: float | None = None,
        block_seconds: float | None = None,
        spool_dir: str | Path | None = None,
        spool_bytes: int | None = None,
    ) -> None:
        self.exporter = exporter
        self._queue_size = max(1, queue_size or _positive(OTEL_BSP_MAX_QUEUE_SIZE, _QUEUE_SIZE))
        batch_size = batch_size or _positive(OTEL_BSP_MAX_EXPORT_BATCH_SIZE, _BATCH_SIZE)
        self._batch_size = max(1, min(batch_size, self._queue_size))
        self._delay = delay_seconds or _positive(OTEL_BSP_SCHEDULE_DELAY, round(_DELAY_SECONDS * 1000)) / 1000
        self._block_seconds = settings.BLOCK_MS.read() / 1000 if block_seconds is None else block_seconds
        self._spool_dir = spool_directory(exporter, spool_dir)
        self._spool_bytes = settings.SPOOL_BYTES.read() if spool_bytes is None else spool_bytes
        self._closed = self._leaving = False
        self._begin()
        processors.add(self)
        metrics.pipelines.add(self)
        with guard("processor.environment"):
            metrics.publish()
            save_before_sigterm(_leave_all, _hurry_all)
            register_with_multiprocessing()
        if os.path.isdir(self._spool_dir):  # somebody may have left spans there
            self._delivery.start()

    def _begin(self) -> None:
        """Start from nothing: at first, and in a forked child, where queue, spool and threads are the parent's."""
        self._queue: deque[ReadableSpan] = deque()
        self._losses = Losses()
        self._spool = Spool(self._spool_dir, self._spool_bytes)
        self._sender = Sender(self.exporter, self._batch_size)
        self._delivery = Delivery(self._sender, self._queue, self._spool, self._losses, self._delay)
        self._stalled = -1  # exports done when a wait for room was in vain

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Nothing to do."""

    def on_end(self, span: ReadableSpan) -> None:
        """Take a sampled span. No lock is held here: it may run amid itself, in a signal handler or a finalizer."""
        try:
            if span.context is None or not span.context.trace_flags.sampled:
                return
            if self._closed:
                self._keep_late(span)
                return
            if not self._delivery.started:
                self._delivery.start()
            if len(self._queue) >= self._queue_size:
                self._overflow(span)
                return
            self._queue.append(span)
            if len(self._queue) % self._batch_size == 0:
                self._delivery.wake()
        except Exception as error:
            note_error("processor.on_end", error)

    def force_flush(self, timeout_millis: int | None = 30_000) -> bool:
        """Export what waits, spool included. False when that fails or takes longer: then it is in the spool, unless the
        disk hangs or the spool is full."""
        if self._closed:
            return False
        seconds = _EXIT_SECONDS if timeout_millis is None else timeout_millis / 1000
        with guard("processor.flush"):
            return self._delivery.flush(time.monotonic() + seconds, patience=seconds)
        return False

    def shutdown(self, timeout_seconds: float = _EXIT_SECONDS) -> None:
        """Deliver what waits while the exporter makes progress, bring the rest to the spool, shut the exporter down."""
        if self in processors:  # also amid a shutdown: SIGTERM may come then, and nothing follows it
            self._closed = True
            with guard("processor.shutdown"):
                self._delivery.finish(time.monotonic() + timeout_seconds, min(_PATIENCE_SECONDS, timeout_seconds))
            processors.discard(self)

    def leave(self, timeout_seconds: float = _EXIT_SECONDS) -> None:
        """Shut down before the process is ended; what threads still end until then goes to the spool."""
        self._leaving = True
        self.shutdown(timeout_seconds)

    @property
    def waiting(self) -> int:
        """Spans in memory that are not exported yet."""
        return len(self._queue) + len(self._delivery.in_memory.in_flight)

    def waiting_by_system(self) -> Counter[str]:
        """Spans in memory that are not exported yet, by memory system; '' for those of none."""
        spans = (*self._queue.copy(), *self._delivery.in_memory.in_flight)
        return Counter(str((span.attributes or {}).get(semconv.SYSTEM, "")) for span in spans)

    @property
    def spooled_bytes(self) -> int:
        """Bytes on disk that are not exported yet."""
        return self._spool.live_bytes

    def _keep_late(self, span: ReadableSpan) -> None:
        if self._leaving:
            self._delivery.keep_late(span)
        else:
            self._losses.note(span, "shutdown")

    def _overflow(self, span: ReadableSpan) -> None:
        """Find room for a span although the queue is full."""
        self._delivery.wake()
        deadline = time.monotonic() + self._block_seconds - _TURN_SECONDS
        if self._exporter_makes_room(deadline) or self._disk_makes_room(deadline):
            self._queue.append(span)
        else:
            self._losses.note(span, "full")

    def _exporter_makes_room(self, deadline: float) -> bool:
        if not self._delivery.started or self._stalled == self._sender.exports or _runs_event_loop():
            return False
        if self._has_room(self._queue_size, deadline):
            return True
        self._stalled = self._sender.exports
        return False

    def _disk_makes_room(self, deadline: float) -> bool:
        self._delivery.relieve(self._queue_size)
        if self._spool.stuck or not self._delivery.started:
            return len(self._queue) < _DISK_STUCK * self._queue_size
        in_time = self._has_room(_DISK_STUCK * self._queue_size, deadline)
        return in_time or len(self._queue) < _DISK_SLOW * self._queue_size

    def _has_room(self, length: int, deadline: float) -> bool:
        """Wait until the queue is shorter than `length`."""
        pause = _POLL_SECONDS
        while len(self._queue) >= length:
            left = deadline - time.monotonic()
            if left <= 0:
                return False
            time.sleep(min(pause, left))
            pause *= 2  # many threads that look often would keep the one that writes from its turn
        return True

    def hurry(self) -> None:
        """Begin to export what waits."""
        self._delivery.hurry()

    def after_fork(self) -> None:
        """In a child: leave the parent's spans to the parent."""
        self._spool.after_fork()
        self._begin()


def _runs_event_loop() -> bool:
    """Whether waiting here would hold up other tasks."""
    asyncio = sys.modules.get("asyncio")
    if asyncio is None:
        return False
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def _positive(variable: str, default: int) -> int:
    """Read a standard variable; what is no positive number gives the default."""
    try:
        return max(0, int(os.environ.get(variable, ""))) or default
    except ValueError:
        return default


def _hurry_all() -> None:
    for processor in list(processors):
        processor.hurry()


def _leave_all(seconds: float = _EXIT_SECONDS) -> None:
    """Shut all processors down: so many seconds for all exporters together, which work side by side."""
    deadline = time.monotonic() + seconds
    _hurry_all()
    for processor in list(processors):
        processor.leave(max(0.1, deadline - time.monotonic()))


# For providers that nobody shuts down. A provider made from now on that does it by itself is asked before us.
atexit.register(_leave_all)
before_child_exits(_leave_all, priority=-1000)  # spans end in other finalizers, too


@after_fork
def _after_fork() -> None:
    for processor in list(processors):
        with guard("processor.fork"):
            processor.after_fork()
