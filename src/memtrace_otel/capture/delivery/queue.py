"""Spans in memory: the queue and the batch in the hands of the exporter, and their way to the spool."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence
from contextlib import suppress

from opentelemetry.sdk.trace import ReadableSpan

from memtrace_otel.capture.delivery.losses import Losses
from memtrace_otel.capture.delivery.segment import MAX_RECORD, Record
from memtrace_otel.capture.delivery.spool import Spool, SpoolFull
from memtrace_otel.capture.guard import guard, note_error
from memtrace_otel.otlp.sdk import encode_sdk_spans

_PIECE = 64
"""Spans that are written in one step: a thread that writes gives up the interpreter lock, and may wait long for it."""


class Flight:
    """A batch in the hands of the exporter. Another thread may bring it to the spool meanwhile."""

    def __init__(self, spans: Sequence[ReadableSpan], *, tells: bool = False) -> None:
        self.spans = spans
        self.tells = tells  # of losses
        self.lock = threading.RLock()  # SIGTERM may come amid `save`, and calls it again
        self.secured: list[Record] | None = None
        self.left: Sequence[ReadableSpan] = ()  # for what the spool has no room
        self.landed = False


class InMemory:
    """What waits in `queue` or is to tell of `losses`, and the batch that one thread has taken of it. Thread-safe."""

    def __init__(self, queue: deque[ReadableSpan], spool: Spool, losses: Losses) -> None:
        self._queue = queue
        self._spool = spool
        self._losses = losses
        self._taking = threading.RLock()  # guards the front of the queue: spans leave it once they are elsewhere
        self._flight: Flight | None = None
        self._closed = False

    def __len__(self) -> int:
        """Spans in the queue."""
        return len(self._queue)

    @property
    def empty(self) -> bool:
        """Whether nothing waits and nothing is under way: to the exporter, or from the losses to the spool."""
        if not self._taking.acquire(blocking=False):
            return False
        try:
            return not (self._queue or self._losses or self._flight)
        finally:
            self._taking.release()

    @property
    def in_flight(self) -> Sequence[ReadableSpan]:
        """Spans in the hands of the exporter."""
        flight = self._flight
        return flight.spans if flight else ()

    def take_off(self, most: int) -> Flight | None:
        """Take a batch of at most `most` spans for the exporter; None when there is none, and after `close`."""
        with self._taking:
            spans = [] if self._closed else self._first(most)
            self._flight = flight = Flight(spans) if spans else None
            self._drop_first(len(spans))
            return flight

    def take_told(self, most: int) -> Flight | None:
        """Take spans that tell of the losses of at most `most` traces; None as `take_off`."""
        with self._taking:
            told = [] if self._closed else self._losses.take(most)
            self._flight = flight = Flight(told, tells=True) if told else None
            return flight

    def land(self, flight: Flight, delivered: bool) -> bool:
        """Settle what the exporter gives back; return `delivered`."""
        with flight.lock:
            flight.landed = True
            if delivered and flight.secured:
                with guard("spool.acknowledge"):
                    self._spool.acknowledge(flight.secured)
            elif not delivered and flight.secured is None:
                self._stow_flight(flight)
        with self._taking:  # `stow` may be between looking at the first spans and taking them off
            if flight is self._flight:  # else it was given up
                if not delivered and flight.tells:
                    self._untell(flight.left)
                elif not delivered:
                    self._queue.extendleft(reversed(flight.left))
                self._flight = None
            flight.left = ()
        return delivered

    def save(self) -> None:
        """Bring everything to the spool. In this order: spans go from the queue, and losses, to the exporter."""
        self.stow()
        self.stow_told(self._spool.for_telling)
        self._secure(self._flight)

    def stow(self, down_to: int = 0) -> None:
        """Bring spans from the queue to the spool, in pieces: nobody waits for a lock for long."""
        waiting = len(self._queue) - down_to
        while waiting > 0:
            with self._taking:
                spans = self._first(min(_PIECE, waiting))
                _, left = stow(spans, self._spool, self._losses)
                self._drop_first(len(spans) - len(left))
            waiting -= len(spans)
            if left or not spans:
                break

    def stow_told(self, bound: int) -> None:
        """Bring what is to tell of losses to the spool, see `Spool` for `bound`. What has no room is not told yet."""
        with self._taking:
            self._untell(stow(self._losses.take(), self._spool, self._losses, bound)[1])

    def close(self) -> None:
        """Give the exporter nothing more."""
        with self._taking:
            self._closed = True

    def give_up(self) -> Sequence[ReadableSpan]:
        """Take away what may be neither delivered nor in the spool. Without a lock: it may never be given back."""
        flight, self._flight = self._flight, None
        given_up = list(flight.spans) if flight else []
        with suppress(IndexError):
            while True:
                given_up.append(self._queue.popleft())
        return given_up

    def left(self) -> Sequence[ReadableSpan]:
        """Take away what is neither delivered nor in the spool."""
        with self._taking:  # else a batch that lands now is in both
            left = (*(self._flight.left if self._flight else ()), *self._queue)
            if self._flight:
                self._flight.left = ()
            self._queue.clear()
            return left

    def _secure(self, flight: Flight | None) -> None:
        if flight is not None:
            with flight.lock:
                if not flight.landed and flight.secured is None:
                    self._stow_flight(flight)

    def _stow_flight(self, flight: Flight) -> None:
        bound = self._spool.for_telling if flight.tells else self._spool.for_spans
        flight.secured, flight.left = stow(flight.spans, self._spool, self._losses, bound)

    def _untell(self, told: Sequence[ReadableSpan]) -> None:
        for span in told:
            self._losses.note(span, "telling")

    def _first(self, most: int) -> list[ReadableSpan]:
        return [self._queue[n] for n in range(min(most, len(self._queue)))]

    def _drop_first(self, amount: int) -> None:
        for _ in range(min(amount, len(self._queue))):  # fewer are there when SIGTERM came in between
            self._queue.popleft()


def stow(
    spans: Sequence[ReadableSpan], spool: Spool, losses: Losses, bound: int | None = None
) -> tuple[list[Record], Sequence[ReadableSpan]]:
    """Write each span to the spool, as a request of its own; return what was written and the spans it has no room for.

    They fill it to `bound` bytes, see `Spool`. A span that cannot be encoded, or is too long for the spool, is lost.
    """
    records: list[Record] = []
    done, step = 0, 1 if spool.stuck else _PIECE
    while done < len(spans):
        piece = spans[done : done + step]
        encoded = [(span, _encode(span)) for span in piece]
        try:
            if bodies := [body for _, body in encoded if body is not None]:
                records += spool.append(*bodies, bound=bound)
        except OSError as error:
            if isinstance(error, SpoolFull) and len(piece) > 1:  # fewer may have room
                step = len(piece) // 2
                continue
            if not isinstance(error, SpoolFull | TimeoutError):
                note_error("spool", error)
            break
        for span, body in encoded:
            if body is None:
                losses.note(span, "unencodable")
        done += len(piece)
    return records, spans[done:]


def _encode(span: ReadableSpan) -> bytes | None:
    try:
        body = encode_sdk_spans((span,))
    except Exception as error:
        note_error("spool.encode", error)
        return None
    return body if len(body) <= MAX_RECORD else None
