"""Spans that were dropped: counted in the metrics, and named by a span `memtrace.other` in their trace."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, TraceFlags
from opentelemetry.util.types import AttributeValue

from memtrace_otel import semconv
from memtrace_otel.capture.guard import note_drop
from memtrace_otel.semconv import Incomplete, OpKind
from memtrace_otel.version import __version__

MAX_TRACES = 1000
"""Traces whose losses are named at a time; the losses of further traces are only counted."""

_logger = logging.getLogger("memtrace_otel.capture")
_ids = RandomIdGenerator()
_SCOPE = InstrumentationScope(semconv.SCOPE_PREFIX, __version__, semconv.SCHEMA_URL)


@dataclass(slots=True)
class _Loss:
    """The losses of one trace; everything but the number is that of the first lost span."""

    spans: int
    parent: SpanContext | None
    start: int
    end: int
    resource: Resource
    system: AttributeValue
    scope: AttributeValue


class Losses:
    """Losses by trace that no span names yet. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # re-entrant: the garbage collector may end a span here
        self._losses: dict[int, _Loss] = {}
        self._warned = False

    def note(self, span: ReadableSpan, reason: str) -> None:
        """Count a dropped span, and remember the loss for its trace. A dropped loss span is remembered again."""
        attributes = span.attributes or {}
        named = attributes.get(semconv.LOST)
        amount = named if isinstance(named, int) else 0
        if not names_losses(span):
            amount += 1
            note_drop(f"span:{reason}")
            if not self._warned:
                self._warned = True
                _logger.warning("memtrace drops spans (%s); further ones are only counted", reason)
        with self._lock:
            trace_id = span.context.trace_id if span.context else 0
            loss = self._losses.get(trace_id)
            if loss is not None:
                loss.spans += amount
            elif trace_id and len(self._losses) < MAX_TRACES:
                self._losses[trace_id] = _Loss(
                    amount,
                    span.parent,
                    span.start_time or 0,
                    span.end_time or 0,
                    span.resource,
                    attributes.get(semconv.SYSTEM, semconv.SCOPE_PREFIX),
                    attributes.get(semconv.SCOPE, ""),
                )

    def __len__(self) -> int:
        return len(self._losses)

    def take(self, most: int) -> list[ReadableSpan]:
        """Return spans that name the losses of at most `most` traces, and forget these losses."""
        with self._lock:
            taken = [self._losses.popitem() for _ in range(min(most, len(self._losses)))]
        return [_loss_span(trace_id, loss) for trace_id, loss in taken]


def names_losses(span: ReadableSpan) -> bool:
    """Whether a span was made by `Losses.take`."""
    reasons = (span.attributes or {}).get(semconv.INCOMPLETE)
    return isinstance(reasons, Sequence) and tuple(reasons) == (Incomplete.LOST_SPANS.value,)


def _loss_span(trace_id: int, loss: _Loss) -> ReadableSpan:
    attributes: dict[str, AttributeValue] = {
        semconv.OP_KIND: OpKind.OTHER.value,
        semconv.SYSTEM: loss.system,
        semconv.INCOMPLETE: (Incomplete.LOST_SPANS.value,),
        semconv.LOST: loss.spans,
    }
    if loss.scope:
        attributes[semconv.SCOPE] = loss.scope
    return ReadableSpan(
        name=semconv.SPAN_NAME_PREFIX + OpKind.OTHER,
        context=SpanContext(trace_id, _ids.generate_span_id(), False, TraceFlags(TraceFlags.SAMPLED)),
        parent=loss.parent,
        resource=loss.resource,
        attributes=attributes,
        start_time=loss.start,
        end_time=loss.end,
        instrumentation_scope=_SCOPE,
    )
