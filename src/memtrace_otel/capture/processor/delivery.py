"""From the queue to the exporter, by way of the spool when the exporter is slow, hangs or fails.

Two threads. The worker exports; it may hang for as long as the exporter does. The watcher never exports: when an export
takes too long, it brings the spans in memory to the spool, so that the death of the process cannot lose them.
"""

from __future__ import annotations

import math
import threading
import time
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from queue import Empty, SimpleQueue

from opentelemetry.instrumentation.utils import suppress_instrumentation
from opentelemetry.sdk.trace import ReadableSpan

from memtrace_otel.capture.guard import guard, note_error
from memtrace_otel.capture.processor.loss import Losses
from memtrace_otel.capture.processor.segment import Record
from memtrace_otel.capture.processor.sending import Sender
from memtrace_otel.capture.processor.spool import Spool
from memtrace_otel.capture.processor.stowing import PIECE, stow

_ADOPT_SECONDS = 60.0
_LEFTOVER_SECONDS = 5.0  # at exit, for what dead processes left
_WATCH_SECONDS = 0.5
_START_SECONDS, _LONGEST_START_SECONDS = 0.001, 1.0  # between attempts to start a thread
_POLL_SECONDS = 0.005


class _Flight:
    """A batch in the hands of the exporter. The watcher may bring it to the spool meanwhile."""

    def __init__(self, spans: Sequence[ReadableSpan]) -> None:
        self.spans = spans
        self.lock = threading.RLock()  # SIGTERM may come amid `finish`, and calls it again
        self.secured: list[Record] | None = None
        self.left: Sequence[ReadableSpan] = ()  # for what the spool has no room
        self.landed = False


class Delivery:
    """Moves spans from `queue` to the exporter, `batch_size` at a time and at least every `delay` seconds."""

    def __init__(self, sender: Sender, queue: deque[ReadableSpan], spool: Spool, losses: Losses, delay: float) -> None:
        self.sender = sender
        self._queue = queue
        self._spool = spool
        self._losses = losses
        self._delay = delay
        self._wakeups: SimpleQueue[None] = SimpleQueue()  # re-entrant, unlike an Event
        self.started = False
        """Whether both threads run or are about to: else nobody makes room."""
        self._once = threading.Lock()  # held by who starts the threads, for good, or works in their place
        self._start_at, self._start_pause = -math.inf, _START_SECONDS  # no attempt before
        self._worker: threading.Thread | None = None
        self._working = False
        self._hurried = False
        self._stopped = False
        self._alarms: SimpleQueue[None] = SimpleQueue()  # for the watcher
        self._most: int | None = None
        self._taking = threading.RLock()  # guards the front of the queue: spans leave it once they are elsewhere
        self._flight: _Flight | None = None
        self._exported_at = 0.0
        self._adopted_at = -math.inf

    # --- the processor's side ------------------------------------------------------------------------------------
    def start(self) -> None:
        """Start the threads, once. Until there are some to be had, and when the interpreter is ending, `flush` works by
        itself; a later call tries again."""
        if time.monotonic() < self._start_at or not self._once.acquire(blocking=False):
            return
        self.started = True
        with guard("processor.start"):
            try:
                if self._worker is None:
                    worker = threading.Thread(target=self._run, name="memtrace-export", daemon=True)
                    worker.start()
                    self._worker = worker
                threading.Thread(target=self._watch, name="memtrace-watch", daemon=True).start()
            except RuntimeError as error:
                ending = "shutdown" in str(error)  # what the interpreter says of itself from 3.12 on
                self._start_at = math.inf if ending else time.monotonic() + self._start_pause
                self._start_pause = min(2 * self._start_pause, _LONGEST_START_SECONDS)
                self.started = False
                self._once.release()
                if not ending:
                    raise

    def wake(self) -> None:
        """Make the worker look at the queue now. Safe anywhere, also amid itself."""
        if self._wakeups.empty():
            self._wakeups.put(None)

    def relieve(self, length: int) -> None:
        """Let the watcher bring the queue down to `length`. Safe anywhere, also amid itself."""
        self._most = length
        if self._alarms.empty():
            self._alarms.put(None)

    def hurry(self) -> None:
        """Export everything now, whatever the pauses say."""
        self._hurried = True
        self.wake()

    @property
    def in_flight(self) -> Sequence[ReadableSpan]:
        """Spans in the hands of the exporter."""
        flight = self._flight
        return flight.spans if flight else ()

    def flush(self, deadline: float, patience: float, *, own: bool = False) -> bool:
        """Wait until nothing waits, or nothing of this process (`own`): what dead ones left may be much.

        False at the deadline, after a failure of the exporter and after `patience` seconds without progress.
        """
        self.start()
        sender = self.sender
        exports, failures, since = sender.exports, sender.failures, time.monotonic()
        self.hurry()
        while True:
            self._stand_in()
            if self._idle(own=own):
                return True
            now = time.monotonic()
            if sender.exports != exports:
                exports, failures, since = sender.exports, sender.failures, now
            if now > deadline or now - since > patience or sender.failures > failures or self._stopped:
                return False
            time.sleep(_POLL_SECONDS)

    def finish(self, deadline: float, patience: float) -> None:
        """Deliver what waits, bring the rest to the spool, end the threads and the exporter."""
        if self.sender.failures == 0 and self.flush(deadline, patience, own=True):
            self.flush(min(deadline, time.monotonic() + _LEFTOVER_SECONDS), patience)
        with self._taking:
            self._stopped = True
        self._alarms.put(None)
        self.wake()
        flight = self._flight
        self._secure(flight)
        self._stow_queue()
        with self._taking:  # else a batch that lands now is in both
            left = (*(flight.left if flight else ()), *self._queue)
        for lost in left:
            self._losses.note(lost, "exit")
        stow(self._losses.take(len(self._losses)), self._spool, self._losses)
        with guard("spool.close"):
            self._spool.close()
        if self._worker is None:
            self.sender.shutdown()
        else:
            self._worker.join(_POLL_SECONDS if self.sender.busy_seconds else patience)

    def _stand_in(self) -> None:
        """Work here while there is no worker."""
        if self._once.acquire(blocking=False):
            try:
                if self._worker is None:
                    with suppress_instrumentation():
                        self._work()
            finally:
                self._once.release()

    def _idle(self, *, own: bool = False) -> bool:
        # In this order: spans go from the queue to the worker to the spool.
        if self._queue or self._working or self._losses:
            return False
        return self._spool.own_empty if own else self._spool.empty

    # --- the worker ----------------------------------------------------------------------------------------------
    def _run(self) -> None:
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
        """Until a batch is full, the delay is over or somebody waits for the end."""
        self._hurried = self._hurried and not self._idle()
        try:
            self._wakeups.get(timeout=self._delay)
            while True:
                self._wakeups.get_nowait()
        except Empty:
            pass

    def _work(self) -> bool:
        """Export what is due and a piece of the spool; return whether there is more to do at once."""
        self._working = True
        failures = self.sender.failures
        try:
            return self._export_due() and (self._replay() or len(self._queue) >= self.sender.limit)
        finally:
            self._working = False
            self._hurried = self._hurried and self.sender.failures <= failures

    def _export_due(self) -> bool:
        """Export the queue as far as it is due; return whether the exporter works."""
        now = time.monotonic()
        if now < self.sender.retry_at and not self._hurried:
            self._stow_queue()
            return False
        due = self._hurried or now - self._exported_at >= self._delay
        if due:
            self._exported_at = now
        waiting = len(self._queue)
        while waiting > 0 and (due or waiting >= self.sender.limit):
            flight = self._take_off()
            if flight is None:
                break
            waiting -= len(flight.spans)
            if not self._land(flight, self.sender.send(flight.spans)):
                return False
        if due and self._losses:
            told = self._losses.take(self.sender.limit)
            if not self.sender.send(told):
                for span in told:
                    self._losses.note(span, "telling")
                return False
        return True

    def _take_off(self) -> _Flight | None:
        with self._taking:
            spans = [] if self._stopped else self._first(self.sender.limit)
            self._flight = flight = _Flight(spans) if spans else None
            self._drop_first(len(spans))
            return flight

    def _land(self, flight: _Flight, delivered: bool) -> bool:
        with flight.lock:
            flight.landed = True
            if delivered and flight.secured:
                with guard("spool.acknowledge"):
                    self._spool.acknowledge(flight.secured)
            elif not delivered and flight.secured is None:
                flight.secured, flight.left = stow(flight.spans, self._spool, self._losses)
        with self._taking:  # the watcher may be between looking at the first spans and taking them off
            if not delivered:
                self._queue.extendleft(reversed(flight.left))
            flight.left = ()
            self._flight = None
        return delivered

    def _replay(self) -> bool:
        """Send the oldest piece of the spool; return whether that went well."""
        now = time.monotonic()
        if now - self._adopted_at >= _ADOPT_SECONDS:
            self._adopted_at = now
            with guard("spool.adopt"):
                self._spool.adopt()
        return not self._stopped and self.sender.replay(self._spool, self._losses)

    # --- the watcher ---------------------------------------------------------------------------------------------
    def _watch(self) -> None:
        patience = min(self._delay, _WATCH_SECONDS)
        while True:
            with suppress(Empty):
                self._alarms.get(timeout=patience)
            if self._stopped:
                return
            with guard("watch"):
                if self.sender.busy_seconds > patience:
                    self._secure(self._flight)
                    self._stow_queue()
                elif self._most is not None:
                    self._stow_queue(self._most)

    def _secure(self, flight: _Flight | None) -> None:
        """Bring a batch that the exporter does not give back to the spool."""
        if flight is not None:
            with flight.lock:
                if not flight.landed and flight.secured is None:
                    flight.secured, flight.left = stow(flight.spans, self._spool, self._losses)

    def _stow_queue(self, down_to: int = 0) -> None:
        """Bring spans from the queue to the spool, in pieces: nobody waits for a lock for long."""
        waiting = len(self._queue) - down_to
        while waiting > 0:
            with self._taking:
                spans = self._first(min(PIECE, waiting))
                _, left = stow(spans, self._spool, self._losses)
                self._drop_first(len(spans) - len(left))
            waiting -= len(spans)
            if left or not spans:
                break

    def _first(self, most: int) -> list[ReadableSpan]:
        return [self._queue[n] for n in range(min(most, len(self._queue)))]

    def _drop_first(self, amount: int) -> None:
        for _ in range(min(amount, len(self._queue))):  # fewer are there when SIGTERM came in between
            self._queue.popleft()
