"""The two threads of the processor: one exports spans, one writes spans to the spool while the exporter is slow."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from queue import Empty, SimpleQueue

from opentelemetry.instrumentation.utils import suppress_instrumentation
from opentelemetry.sdk.trace import ReadableSpan

from memtrace_otel.capture.delivery.losses import Losses
from memtrace_otel.capture.delivery.queue import SpanQueue, write_to_spool
from memtrace_otel.capture.delivery.sender import Sender
from memtrace_otel.capture.delivery.spool import Spool
from memtrace_otel.capture.guard import guard, note_error

_ADOPT_SECONDS = 60.0
_LEFTOVER_SECONDS = 5.0  # at exit, for the spools of dead processes
_WATCH_SECONDS = 0.5
_POLL_SECONDS = 0.005


class Delivery:
    """Moves spans from `queue` to the exporter in batches, at least every `delay` seconds, or to the spool."""

    def __init__(self, sender: Sender, queue: SpanQueue, spool: Spool, losses: Losses, delay: float) -> None:
        self.sender = sender
        self.queue = queue
        self._spool = spool
        self._losses = losses
        self._delay = delay
        self.started = False
        """Whether both threads run."""
        self._starting = threading.Lock()  # held by the caller that starts the threads, or works in their place
        self._exporter: threading.Thread | None = None
        self._exporter_wakeups: SimpleQueue[None] = SimpleQueue()  # re-entrant, unlike an Event
        self._spooler_wakeups: SimpleQueue[None] = SimpleQueue()
        self._working = False
        self._hurried = False
        self._stopped = False
        self._relieve_to: int | None = None
        self._exported_at = 0.0
        self._adopted_at = -math.inf

    # --- called by the processor ---------------------------------------------------------------------------------
    def start(self) -> None:
        """Start the threads, once. Without a free thread, and while the interpreter ends, a later call tries again."""
        if self.started or not self._starting.acquire(blocking=False):
            return
        try:
            self._exporter = self._exporter or _started(self._run_exporter, "memtrace-export")
            _started(self._run_spooler, "memtrace-spool")
            self.started = True
        except RuntimeError as error:
            note_error("processor.start", error)
        finally:
            self._starting.release()

    def wake(self) -> None:
        """Let the exporting thread look at the queue. Safe in signal handlers and finalizers."""
        if self._exporter_wakeups.empty():
            self._exporter_wakeups.put(None)

    def relieve(self, length: int) -> None:
        """Let the other thread move the queue to the spool until `length` spans are left. Safe as `wake`."""
        self._relieve_to = length
        if self._spooler_wakeups.empty():
            self._spooler_wakeups.put(None)

    def hurry(self) -> None:
        """Export everything now, without the pauses after failures."""
        self._hurried = True
        self.wake()

    def flush(self, deadline: float, patience: float) -> bool:
        """Wait until nothing waits. False at the deadline, after a failure, and after `patience` seconds without an
        export: then all spans in memory are written to the spool."""
        if self._wait_until_empty(deadline, patience):
            return True
        if not self._stopped:
            self.queue.save()
        return False

    def finish(self, deadline: float, patience: float) -> None:
        """Deliver the spans, write the rest to the spool, end the threads and the exporter."""
        with guard("delivery"):
            if self.sender.failures == 0 and self._wait_until_empty(deadline, patience, own=True):
                self._wait_until_empty(min(deadline, time.monotonic() + _LEFTOVER_SECONDS), patience)
        self._stopped = True
        self.wake()
        self._spooler_wakeups.put(None)
        self.queue.close()
        with guard("spool.save"):
            self.queue.save()
        for span in self.queue.take_unsaved():
            self._losses.note(span, "exit")
        with guard("spool.save"):
            self.queue.save()  # the spans that name these losses
        with guard("spool.close"):
            self._spool.close()
        if self._exporter is None:
            self.sender.shutdown()
        else:
            self._exporter.join(_POLL_SECONDS if self.sender.busy_seconds else patience)

    def save_late(self, span: ReadableSpan) -> None:
        """Write a span that ended after `finish` to the spool."""
        for lost in write_to_spool((span,), self._spool, self._losses)[1]:
            self._losses.note(lost, "shutdown")

    def _wait_until_empty(self, deadline: float, patience: float, *, own: bool = False) -> bool:
        """Wait as `flush`; `own`: the spools of dead processes, which may be large, do not count."""
        self.start()
        sender = self.sender
        exports, failures, since = sender.exports, sender.failures, time.monotonic()
        self.hurry()
        while True:
            failed = not self._work_here()
            if self._is_idle(own=own):
                return True
            now = time.monotonic()
            if sender.exports != exports:
                exports, failures, since = sender.exports, sender.failures, now
            failed = failed or sender.failures > failures
            if failed or now > deadline or now - since > patience or self._stopped:
                return False
            time.sleep(_POLL_SECONDS)

    def _work_here(self) -> bool:
        """Export in this thread if there is no exporting thread; False after an error."""
        if self._starting.acquire(blocking=False):
            try:
                if self._exporter is None:
                    with suppress_instrumentation():
                        self._work()
            except Exception as error:
                note_error("delivery", error)
                return False
            finally:
                self._starting.release()
        return True

    def _is_idle(self, *, own: bool = False) -> bool:
        if not self.queue.empty or self._working:  # before the spool: spans go from the queue to the spool
            return False
        return self._spool.own_empty if own else self._spool.empty

    # --- the exporting thread ------------------------------------------------------------------------------------
    def _run_exporter(self) -> None:
        with suppress_instrumentation():
            while not self._stopped:
                try:
                    if not self._work():
                        self._pause()
                except Exception as error:
                    note_error("delivery", error)
                    time.sleep(self._delay)
            self.sender.shutdown()

    def _pause(self) -> None:
        """Wait until a batch is full, the delay is over or `hurry` is called."""
        self._hurried = self._hurried and not self._is_idle()
        with suppress(Empty):
            self._exporter_wakeups.get(timeout=self._delay)
            while True:
                self._exporter_wakeups.get_nowait()

    def _work(self) -> bool:
        """Export the due spans and a piece of the spool; return whether there is more to export at once."""
        self._working = True
        failures = self.sender.failures
        try:
            return self._export_due() and (self._replay() or len(self.queue) >= self.sender.limit)
        finally:
            self._working = False
            self._hurried = self._hurried and self.sender.failures <= failures

    def _export_due(self) -> bool:
        """Export full batches, and all spans once the delay is over; return whether the exporter works."""
        now = time.monotonic()
        if now < self.sender.retry_at and not self._hurried:
            self.queue.move_to_spool()
            return False
        due = self._hurried or now - self._exported_at >= self._delay
        if due:
            self._exported_at = now
        waiting = len(self.queue) + (len(self._losses) if due else 0)
        while waiting > 0 and (due or waiting >= self.sender.limit):
            batch = self.queue.take(self.sender.limit)
            if batch is None:
                break
            waiting -= len(batch.spans)
            if not self.queue.give_back(batch, self.sender.send(batch.spans)):
                return False
        return True

    def _replay(self) -> bool:
        """Export the oldest piece of the spool; return whether that succeeded."""
        now = time.monotonic()
        if now - self._adopted_at >= _ADOPT_SECONDS:
            self._adopted_at = now
            with guard("spool.adopt"):
                self._spool.adopt()
        return not self._stopped and self.sender.replay(self._spool, self._losses)

    # --- the spooling thread -------------------------------------------------------------------------------------
    def _run_spooler(self) -> None:
        patience = min(self._delay, _WATCH_SECONDS)
        while not self._stopped:
            with suppress(Empty):
                self._spooler_wakeups.get(timeout=patience)
            with guard("spool"):
                if self._stopped:
                    return
                if self.sender.busy_seconds > patience:  # the death of the process must not lose the spans in memory
                    self.queue.save()
                elif self._relieve_to is not None:
                    self.queue.move_to_spool(self._relieve_to)


def _started(work: Callable[[], None], name: str) -> threading.Thread:
    thread = threading.Thread(target=work, name=name, daemon=True)
    thread.start()
    return thread
