"""Our processor in the place of the SDK's batch processor, around the same exporter."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import Any

from opentelemetry import trace
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from memtrace_otel.capture.delivery.processor import LosslessSpanProcessor
from memtrace_otel.capture.guard import guard

_STOCK_QUEUE, _STOCK_BATCH, _STOCK_DELAY_MS = 2048, 512, 5000
"""Defaults of the SDK: a processor that has them was not configured by anybody, so ours apply."""
_BATCH_SECONDS = 0.1
"""Who has the old worker's lock for longer is exporting, so has taken its batch out of the queue."""
_ON_THEIR_WAY_SECONDS = 1.0
"""A thread that is in the old processor's `emit` has left it after this."""


def replace_batch_processors(provider: trace.TracerProvider | None = None) -> int:
    """Replace each BatchSpanProcessor of an SDK tracer provider (default: the global one); return how many.

    The SDK has no public way to do this. Where its private parts look different from what is expected, and for
    providers and processors of other classes, everything stays as it is. Spans that wait move over. Never raises.
    """
    replaced = 0
    with guard("processor.replace"):
        group: Any = getattr(provider or trace.get_tracer_provider(), "_active_span_processor", None)
        for stock in getattr(group, "_span_processors", ()):
            if type(stock) is BatchSpanProcessor:
                with guard("processor.replace"):
                    replaced += _replace(group, stock)
    return replaced


def _replace(group: Any, stock: Any) -> bool:
    inner = stock._batch_processor
    queue, awake, lock, exporter = inner._queue, inner._worker_awaken, inner._export_lock, inner._exporter
    ours = LosslessSpanProcessor(
        exporter,
        queue_size=_chosen(inner._max_queue_size, _STOCK_QUEUE),
        batch_size=_chosen(inner._max_export_batch_size, _STOCK_BATCH),
        delay_seconds=_chosen(inner._schedule_delay_millis, _STOCK_DELAY_MS) / 1000 or None,
    )
    with group._lock:
        group._span_processors = tuple(ours if each is stock else each for each in group._span_processors)

    def move() -> None:
        with suppress(IndexError):
            while True:
                ours.on_end(queue.pop())

    def end(*_: object) -> None:  # the old worker runs this in the place of an export
        time.sleep(_ON_THEIR_WAY_SECONDS)
        inner._shutdown = True
        move()

    # For threads that are just going through the old processor, and for who holds it: shutting it down later must not
    # close the exporter.
    inner.emit = stock.on_end = ours.on_end
    stock.force_flush, stock.shutdown = ours.force_flush, _do_nothing
    inner._export = end
    inner._shutdown_timeout_exceeded = True  # no further batch is begun; one that is begun is soon out of the queue
    taken = lock.acquire(timeout=_BATCH_SECONDS)
    move()
    if taken:
        lock.release()
    awake.set()
    return True


def _do_nothing() -> None:
    pass


def _chosen(value: float, stock: int) -> int:
    """A value that somebody chose, else 0."""
    return 0 if value == stock else round(value)
