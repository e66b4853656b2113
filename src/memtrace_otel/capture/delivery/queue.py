"""The queue of spans in memory: batches for the exporter, and the way of spans from memory to the spool."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Sequence

from opentelemetry.sdk.trace import ReadableSpan

from memtrace_otel.capture.delivery.losses import Losses, names_losses
from memtrace_otel.capture.delivery.segment import MAX_RECORD, Record
from memtrace_otel.capture.delivery.spool import Spool, SpoolFull
from memtrace_otel.capture.guard import guard, note_error
from memtrace_otel.otlp.sdk import encode_sdk_spans

_PIECE = 64
"""Spans that are written in one step: other threads wait for the lock of the queue for one step at most."""


class Batch:
    """Spans that the exporter was given. Another thread may write the batch to the spool meanwhile."""

    def __init__(self, spans: Sequence[ReadableSpan]) -> None:
        self.spans = spans
        self.lock = threading.RLock()  # re-entrant: SIGTERM may arrive during a write, and writes the batch, too
        self.records: list[Record] | None = None
        """The records of the batch in the spool, None before the batch was written."""
        self.left: Sequence[ReadableSpan] = ()
        """Spans of the batch for which the spool had no room."""
        self.returned = False


class SpanQueue:
    """The spans in `spans`, and the batch that the exporter was given. Thread-safe."""

    def __init__(self, spool: Spool, losses: Losses) -> None:
        self.spans: deque[ReadableSpan] = deque()
        self._spool = spool
        self._losses = losses
        self._front = threading.RLock()  # held while spans leave the front of the queue
        self._batch: Batch | None = None
        self._closed = False

    def __len__(self) -> int:
        """Spans in the queue, without the batch."""
        return len(self.spans)

    @property
    def empty(self) -> bool:
        """Whether no span and no loss waits, and the exporter has no batch."""
        if not self._front.acquire(blocking=False):
            return False
        try:
            return not (self.spans or self._losses or self._batch)
        finally:
            self._front.release()

    @property
    def exporting(self) -> Sequence[ReadableSpan]:
        """The spans that the exporter was given."""
        batch = self._batch
        return batch.spans if batch else ()

    def take(self, most: int) -> Batch | None:
        """Take a batch of at most `most` spans for the exporter; None if no span waits, and after `close`.

        Spans that name losses fill up a batch that the queue does not fill.
        """
        with self._front:
            if self._closed:
                return None
            spans = self._first(most)
            self._drop_first(len(spans))
            spans += self._losses.take(most - len(spans))
            self._batch = Batch(spans) if spans else None
            return self._batch

    def give_back(self, batch: Batch, delivered: bool) -> bool:
        """Settle a batch: spans that were not delivered go to the spool, or back to the queue. Return `delivered`."""
        with batch.lock:
            batch.returned = True
            if delivered and batch.records:
                with guard("spool.acknowledge"):
                    self._spool.acknowledge(batch.records)
            elif not delivered and batch.records is None:
                batch.records, batch.left = self._write(batch.spans)
        with self._front:
            if not delivered:
                self._put_back(batch.left)
            batch.left = ()
            self._batch = None
        return delivered

    def move_to_spool(self, down_to: int = 0) -> None:
        """Write spans from the front of the queue to the spool until `down_to` spans are left."""
        waiting = len(self.spans) - down_to
        while waiting > 0:
            with self._front:
                spans = self._first(min(_PIECE, waiting))
                _, left = self._write(spans)
                self._drop_first(len(spans) - len(left))
            waiting -= len(spans)
            if left or not spans:
                break

    def save(self) -> None:
        """Write all spans to the spool: the queue, spans that name losses, and the batch of the exporter."""
        self.move_to_spool()
        with self._front:
            self._put_back(self._write(self._losses.take(len(self._losses)))[1])
        batch = self._batch
        if batch is not None:
            with batch.lock:
                if not batch.returned and batch.records is None:
                    batch.records, batch.left = self._write(batch.spans)

    def close(self) -> None:
        """Give no further batch to the exporter."""
        with self._front:
            self._closed = True

    def take_unsaved(self) -> Sequence[ReadableSpan]:
        """Take the spans that are neither delivered nor in the spool."""
        with self._front:
            left = (*(self._batch.left if self._batch else ()), *self.spans)
            if self._batch:
                self._batch.left = ()
            self.spans.clear()
            return left

    def _write(self, spans: Sequence[ReadableSpan]) -> tuple[list[Record], Sequence[ReadableSpan]]:
        return write_to_spool(spans, self._spool, self._losses)

    def _put_back(self, spans: Sequence[ReadableSpan]) -> None:
        """Put spans back to the front of the queue; the lock is held."""
        for span in reversed(spans):
            if names_losses(span):
                self._losses.note(span, "full")
            else:
                self.spans.appendleft(span)

    def _first(self, most: int) -> list[ReadableSpan]:
        return [self.spans[n] for n in range(min(most, len(self.spans)))]

    def _drop_first(self, amount: int) -> None:
        for _ in range(min(amount, len(self.spans))):  # a signal handler may have taken some in between
            self.spans.popleft()


def write_to_spool(
    spans: Sequence[ReadableSpan], spool: Spool, losses: Losses
) -> tuple[list[Record], Sequence[ReadableSpan]]:
    """Write each span to the spool as one request. Return the records, and the spans for which the spool has no room.

    A span that cannot be encoded, or is too long for the spool, is lost.
    """
    records: list[Record] = []
    done, step = 0, _PIECE
    while done < len(spans):
        piece = spans[done : done + step]
        encoded = [(span, _encode(span)) for span in piece]
        try:
            if bodies := [body for _, body in encoded if body is not None]:
                records += spool.append(*bodies)
        except OSError as error:
            if isinstance(error, SpoolFull) and len(piece) > 1:  # fewer spans may have room
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
