"""Spans that were dropped after all: counted, and named in the trace they belong to."""

from __future__ import annotations

import logging
import threading
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
"""Traces whose losses are named at a time; past it a loss is only counted."""

_logger = logging.getLogger("memtrace_otel.capture")
_new_id = RandomIdGenerator().generate_span_id
_SCOPE = InstrumentationScope(semconv.SCOPE_PREFIX, __version__, semconv.SCHEMA_URL)


@dataclass(slots=True)
class _Loss:
    """What one trace lost; the rest is that of the first span lost."""

    spans: int
    parent: SpanContext | None
    start: int
    end: int
    resource: Resource
    system: AttributeValue
    scope: AttributeValue


class Losses:
    """Losses that no span tells of yet, by trace. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # re-entrant: the garbage collector may end a span here
        self._losses: dict[int, _Loss] = {}
        self._warned = False

    def note(self, span: ReadableSpan, reason: str) -> None:
        """Count a span that was dropped and remember its trace."""
        attributes = span.attributes or {}
        lost = attributes.get(semconv.LOST)
        amount = lost if isinstance(lost, int) else 1
        if amount is not lost:  # else they were counted before the span that should have told of them
            note_drop(f"span:{reason}", system=str(attributes.get(semconv.SYSTEM, "")))
            if not self._warned:
                self._warned = True
                _logger.warning("memtrace drops spans (%s); further ones are only counted", reason)
        context = span.context
        with self._lock:
            if context is None or (context.trace_id not in self._losses and len(self._losses) >= MAX_TRACES):
                return
            loss = self._losses.get(context.trace_id)
            if loss is None:
                loss = self._losses[context.trace_id] = _Loss(
                    0,
                    span.parent,
                    span.start_time or 0,
                    span.end_time or 0,
                    span.resource,
                    attributes.get(semconv.SYSTEM, semconv.SCOPE_PREFIX),
                    attributes.get(semconv.SCOPE, ""),
                )
            loss.spans += amount

    def __len__(self) -> int:
        return len(self._losses)

    def take(self, amount: int) -> list[ReadableSpan]:
        """Return spans that tell of the losses of at most `amount` traces, and forget these."""
        with self._lock:
            taken = [self._losses.popitem() for _ in range(min(amount, len(self._losses)))]
        return [_span(trace_id, loss) for trace_id, loss in taken]


def _span(trace_id: int, loss: _Loss) -> ReadableSpan:
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
        context=SpanContext(trace_id, _new_id(), False, TraceFlags(TraceFlags.SAMPLED)),
        parent=loss.parent,
        resource=loss.resource,
        attributes=attributes,
        start_time=loss.start,
        end_time=loss.end,
        instrumentation_scope=_SCOPE,
    )
