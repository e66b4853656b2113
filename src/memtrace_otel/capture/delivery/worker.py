"""From the queue to the exporter, by way of the spool when the exporter is slow, hangs or fails.

Two threads. The worker exports; it may hang for as long as the exporter does. The watcher never exports: when an export
takes too long, it brings the spans in memory to the spool, so that the death of the process cannot lose them.
"""

from __future__ import annotations

import math
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from queue import Empty, SimpleQueue

from opentelemetry.instrumentation.utils import suppress_instrumentation
from opentelemetry.sdk.trace import ReadableSpan

from memtrace_otel.capture.delivery.losses import Losses
from memtrace_otel.capture.delivery.queue import Flight, InMemory, stow
from memtrace_otel.capture.delivery.sender import Sender
from memtrace_otel.capture.delivery.spool import Spool
from memtrace_otel.capture.guard import guard, note_error

_ADOPT_SECONDS = 60.0
_LEFTOVER_SECONDS = 5.0  # at exit, for what dead processes left
_WATCH_SECONDS = 0.5
_SAVE_SECONDS = 3.0  # that a flush waits for the disk, when it must
_START_SECONDS, _LONGEST_START_SECONDS = 0.001, 1.0  # between attempts to start a thread
_POLL_SECONDS = 0.005


@dataclass(frozen=True, slots=True)
class _Errand:
    """Work for the watcher, after the `last` of which it ends; `done` holds something when it is done."""

    work: Callable[[], None]
    last: bool = False
    done: SimpleQueue[None] = field(default_factory=SimpleQueue[None])


class Delivery:
    """Moves spans from `queue` to the exporter, `batch_size` at a time and at least every `delay` seconds."""

    def __init__(self, sender: Sender, queue: deque[ReadableSpan], spool: Spool, losses: Losses, delay: float) -> None:
        self.sender = sender
        self.in_memory = InMemory(queue, spool, losses)
        self._spool = spool
        self._losses = losses
        self._delay = delay
        self._wakeups: SimpleQueue[None] = SimpleQueue()  # re-entrant, unlike an Event
        self.started = False
        """Whether both threads run or are about to: else nobody makes room."""
        self._once = threading.Lock()  # held by who starts the threads, for good, or works in their place
        self._start_at, self._start_pause = -math.inf, _START_SECONDS  # no attempt before
        self._worker: threading.Thread | None = None
        self._watcher: threading.Thread | None = None
        self._working = False
        self._hurried = False
        self._stopped = False
        self._alarms: SimpleQueue[_Errand | None] = SimpleQueue()  # for the watcher
        self._most: int | None = None
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
                watcher = threading.Thread(target=self._watch, name="memtrace-watch", daemon=True)
                watcher.start()
                self._watcher = watcher
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

    def flush(self, deadline: float, patience: float) -> bool:
        """Wait until nothing waits. False at the deadline, after a failure of the exporter and after `patience` seconds
        without progress: then what is in memory is in the spool, where the disk takes it within three more seconds."""
        if self._has_emptied(deadline, patience):
            return True
        if self._stopped:
            return False  # `finish` sees to it
        self._have_done(_Errand(self.in_memory.save), time.monotonic() + _SAVE_SECONDS)
        return False

    def _have_done(self, errand: _Errand, deadline: float) -> bool:
        """Let the watcher do it: a disk that hangs must not hold the program up. False when that takes too long."""
        watcher = self._watcher
        if watcher is not None and not sys.is_finalizing():  # then threads stand still
            self._alarms.put(errand)
            while watcher.is_alive():
                with suppress(Empty):
                    errand.done.get(timeout=_POLL_SECONDS)
                    return True
                if time.monotonic() > deadline or self._spool.hangs:
                    return False
        if errand.done.empty():  # no watcher to be had, or this is amid its last errand
            errand.work()
        return True

    def _has_emptied(self, deadline: float, patience: float, *, own: bool = False) -> bool:
        """Wait as `flush` does, or until nothing of this process waits (`own`): what dead ones left may be much."""
        self.start()
        sender = self.sender
        exports, failures, since = sender.exports, sender.failures, time.monotonic()
        self.hurry()
        while True:
            failed = not self._stand_in()
            if self._idle(own=own):
                return True
            now = time.monotonic()
            if sender.exports != exports:
                exports, failures, since = sender.exports, sender.failures, now
            failed = failed or sender.failures > failures
            if failed or now > deadline or now - since > patience or self._stopped:
                return False
            time.sleep(_POLL_SECONDS)

    def finish(self, deadline: float, patience: float) -> None:
        """Deliver what waits, bring the rest to the spool, end the threads and the exporter."""
        with guard("delivery"):
            if self.sender.failures == 0 and self._has_emptied(deadline, patience, own=True):
                self._has_emptied(min(deadline, time.monotonic() + _LEFTOVER_SECONDS), patience)
        self._stopped = True
        self.wake()
        if not self._have_done(_Errand(self._bring_to_disk, last=True), math.inf):
            for lost in self.in_memory.give_up():
                self._losses.note(lost, "exit")
        if self._worker is None:
            self.sender.shutdown()
        else:
            self._worker.join(_POLL_SECONDS if self.sender.busy_seconds else patience)

    def _bring_to_disk(self) -> None:
        """Bring everything to the spool for good, and what tells of the rest."""
        self.in_memory.close()
        with guard("spool.save"):
            self.in_memory.save()
        with guard("spool.tell"):
            for lost in self.in_memory.left():
                self._losses.note(lost, "exit")
            self.in_memory.stow_told(self._spool.for_telling)
            self._losses.sum_up()
            self.in_memory.stow_told(self._spool.for_all)
        with guard("spool.close"):
            self._spool.close()

    def keep_late(self, span: ReadableSpan) -> None:
        """Bring a span that ended after `finish` to the spool, or what tells of it."""
        if self._spool.hangs:
            self._losses.note(span, "shutdown")
            return
        for lost in stow((span,), self._spool, self._losses)[1]:
            self._losses.note(lost, "shutdown")
        self.in_memory.stow_told(self._spool.for_all)

    def _stand_in(self) -> bool:
        """Work here while there is no worker; False when that went wrong."""
        if self._once.acquire(blocking=False):
            try:
                if self._worker is None:
                    with suppress_instrumentation():
                        self._work()
            except Exception as error:
                note_error("delivery", error)
                return False
            finally:
                self._once.release()
        return True

    def _idle(self, *, own: bool = False) -> bool:
        # In this order: spans go from memory to the spool.
        if not self.in_memory.empty or self._working:
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
            return self._export_due() and (self._replay() or len(self.in_memory) >= self.sender.limit)
        finally:
            self._working = False
            self._hurried = self._hurried and self.sender.failures <= failures

    def _export_due(self) -> bool:
        """Export the queue as far as it is due; return whether the exporter works."""
        now = time.monotonic()
        if now < self.sender.retry_at and not self._hurried:
            self.in_memory.stow()
            return False
        due = self._hurried or now - self._exported_at >= self._delay
        if due:
            self._exported_at = now
        waiting = len(self.in_memory)
        while waiting > 0 and (due or waiting >= self.sender.limit):
            flight = self.in_memory.take_off(self.sender.limit)
            if flight is None:
                break
            waiting -= len(flight.spans)
            if not self._send(flight):
                return False
        return not due or self._tell()

    def _tell(self) -> bool:
        """Tell of the losses until now; return whether the exporter works."""
        waiting = len(self._losses)
        while waiting > 0 and (flight := self.in_memory.take_told(self.sender.limit)):
            waiting -= len(flight.spans)
            if not self._send(flight):
                return False
        return True

    def _send(self, flight: Flight) -> bool:
        return self.in_memory.land(flight, self.sender.send(flight.spans))

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
            errand = None
            with suppress(Empty):
                errand = self._alarms.get(timeout=patience)
            with guard("watch"):
                if errand is not None:
                    errand.work()
                elif self.sender.busy_seconds > patience:
                    self.in_memory.save()
                elif self._most is not None:
                    self.in_memory.stow(self._most)
            if errand is not None:
                errand.done.put(None)
                if errand.last:
                    return
