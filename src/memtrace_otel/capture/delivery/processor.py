"""`LosslessSpanProcessor`: a batch span processor with a bounded queue and a spool on disk."""

from __future__ import annotations

import atexit
import os
import time
from pathlib import Path

from opentelemetry.context import Context
from opentelemetry.sdk.environment_variables import (
    OTEL_BSP_MAX_EXPORT_BATCH_SIZE,
    OTEL_BSP_MAX_QUEUE_SIZE,
    OTEL_BSP_SCHEDULE_DELAY,
)
from opentelemetry.sdk.trace import ReadableSpan, Span, SpanProcessor
from opentelemetry.sdk.trace.export import SpanExporter

from memtrace_otel import settings
from memtrace_otel.capture import metrics
from memtrace_otel.capture.delivery.losses import Losses
from memtrace_otel.capture.delivery.queue import SpanQueue
from memtrace_otel.capture.delivery.sender import Sender
from memtrace_otel.capture.delivery.spool import Spool, spool_directory
from memtrace_otel.capture.delivery.worker import Delivery
from memtrace_otel.capture.fork import after_fork
from memtrace_otel.capture.guard import guard, note_error
from memtrace_otel.capture.process_exit import before_child_exits, register_with_multiprocessing, save_before_sigterm

_QUEUE_SIZE, _BATCH_SIZE, _DELAY_SECONDS = 2048, 256, 0.5
_POLL_SECONDS = 0.002
_MARGIN_SECONDS = 0.01  # a thread that wakes up waits up to two switch intervals for the interpreter lock
_WAIT_QUEUES, _MOST_QUEUES = 2, 4
"""Multiples of `queue_size` from which on a span waits for room, and is dropped, while the spool takes spans."""
_STUCK_SECONDS = 1.0  # without an export or a write to the spool: then no span waits
_EXIT_SECONDS = 30.0
_PATIENCE_SECONDS = 3.0
"""At exit, an exporter without progress for this long is not waited for; the rest goes to the spool."""

processors: set[LosslessSpanProcessor] = set()
"""The processors of this process that were not shut down; also holds those whose provider is gone."""


class LosslessSpanProcessor(SpanProcessor):
    """Batches sampled spans for `exporter` and keeps them through bursts, failures and the death of the process.

    `on_end` never raises and never writes to the disk. Spans beyond `queue_size` in memory are moved by another thread
    to the spool: files below `spool_dir`, at most `spool_bytes` together. At twice `queue_size`, `on_end` waits at
    most `block_seconds` for room, unless neither exporter nor spool took a span for a second. At four times
    `queue_size` a span is dropped: counted in the metrics, and named by a span `memtrace.other` in its trace.

    A failed export, or one that takes longer than `delay_seconds`, is written to the spool as well and repeated with
    growing pauses. The spool of a dead process is sent by the next process with the same destination, so a span can
    arrive twice. Missing arguments come from OTEL_BSP_MAX_QUEUE_SIZE, OTEL_BSP_MAX_EXPORT_BATCH_SIZE,
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
        if os.path.isdir(self._spool_dir):  # a dead process may have left spans
            self._delivery.start()

    def _begin(self) -> None:
        """Make queue, spool and threads: at first, and in a forked child, where they are those of the parent."""
        self._losses = Losses()
        self._spool = Spool(self._spool_dir, self._spool_bytes)
        self._queue = SpanQueue(self._spool, self._losses)
        self._sender = Sender(self.exporter, self._batch_size)
        self._delivery = Delivery(self._sender, self._queue, self._spool, self._losses, self._delay)
        self._progress, self._progress_at = (-1, -1), 0.0  # exports and writes to the spool, and since when

    def on_start(self, span: Span, parent_context: Context | None = None) -> None:
        """Nothing to do."""

    def on_end(self, span: ReadableSpan) -> None:
        """Take a sampled span. Holds no lock, since a signal handler or finalizer may interrupt the method."""
        try:
            if span.context is None or not span.context.trace_flags.sampled:
                return
            if self._closed:
                self._late(span)
                return
            if not self._delivery.started:
                self._delivery.start()
            if len(self._queue) >= self._queue_size and not self._make_room():
                self._losses.note(span, "full")
                return
            self._queue.spans.append(span)
            if len(self._queue) % self._batch_size == 0:
                self._delivery.wake()
        except Exception as error:
            note_error("processor.on_end", error)

    def force_flush(self, timeout_millis: int | None = 30_000) -> bool:
        """Export all spans, also those in the spool. False after a failure or the time: then the spans in memory are
        written to the spool, as far as it has room."""
        if self._closed:
            return False
        seconds = _EXIT_SECONDS if timeout_millis is None else timeout_millis / 1000
        with guard("processor.flush"):
            return self._delivery.flush(time.monotonic() + seconds, patience=seconds)
        return False

    def shutdown(self, timeout_seconds: float = _EXIT_SECONDS) -> None:
        """Deliver spans while the exporter makes progress, write the rest to the spool, shut the exporter down."""
        if self in processors:  # also during a shutdown, which SIGTERM may interrupt
            self._closed = True
            with guard("processor.shutdown"):
                self._delivery.finish(time.monotonic() + timeout_seconds, min(_PATIENCE_SECONDS, timeout_seconds))
            processors.discard(self)

    def leave(self, timeout_seconds: float = _EXIT_SECONDS) -> None:
        """Shut down before the process ends; spans that other threads still end go to the spool."""
        self._leaving = True
        self.shutdown(timeout_seconds)

    @property
    def waiting(self) -> int:
        """Spans in memory that are not exported yet."""
        return len(self._queue) + len(self._queue.exporting)

    @property
    def spooled_bytes(self) -> int:
        """Bytes on disk that are not exported yet."""
        return self._spool.live_bytes

    def _late(self, span: ReadableSpan) -> None:
        if self._leaving:
            self._delivery.save_late(span)
        else:
            self._losses.note(span, "shutdown")

    def _make_room(self) -> bool:
        """Move spans from the full queue to the spool; return whether there is room for one span."""
        self._delivery.wake()
        self._delivery.relieve(self._queue_size)
        progress, now = (self._sender.exports, self._spool.appends), time.monotonic()
        if progress != self._progress:
            self._progress, self._progress_at = progress, now
        if self._delivery.started and now - self._progress_at < _STUCK_SECONDS:
            deadline, pause = now + self._block_seconds - _MARGIN_SECONDS, _POLL_SECONDS
            while len(self._queue) >= _WAIT_QUEUES * self._queue_size and (left := deadline - time.monotonic()) > 0:
                time.sleep(min(pause, left))
                pause *= 2  # many threads that poll would delay the thread that writes
        return len(self._queue) < _MOST_QUEUES * self._queue_size

    def hurry(self) -> None:
        """Begin to export all spans."""
        self._delivery.hurry()

    def after_fork(self) -> None:
        """In a forked child: forget the spans of the parent."""
        self._spool.after_fork()
        self._begin()


def _positive(variable: str, default: int) -> int:
    """The number of a standard variable, `default` if it is no positive number."""
    try:
        return max(0, int(os.environ.get(variable, ""))) or default
    except ValueError:
        return default


def _hurry_all() -> None:
    for processor in list(processors):
        processor.hurry()


def _leave_all(seconds: float = _EXIT_SECONDS) -> None:
    """Shut all processors down within `seconds`; the exporters work at the same time."""
    deadline = time.monotonic() + seconds
    _hurry_all()
    for processor in list(processors):
        processor.leave(max(0.1, deadline - time.monotonic()))


# For providers that are not shut down. The exit function of a later provider runs before this one.
atexit.register(_leave_all)
before_child_exits(_leave_all, priority=-1000)  # after other finalizers, which may end spans


@after_fork
def _after_fork() -> None:
    for processor in list(processors):
        with guard("processor.fork"):
            processor.after_fork()
