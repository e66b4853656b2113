"""Spans that were dropped after all: counted, and named in the trace they belong to."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import dataclass, replace

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
"""Traces whose losses are named at a time; those of further ones are told in sum, in a trace of their own."""

_logger = logging.getLogger("memtrace_otel.capture")
_ids = RandomIdGenerator()
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
        self._sum = _ids.generate_trace_id()
        self._warned = False

    def note(self, span: ReadableSpan, reason: str) -> None:
        """Count a span that was dropped, and what it was to tell of; remember its trace."""
        attributes = span.attributes or {}
        told = attributes.get(semconv.LOST)
        amount = told if isinstance(told, int) else 0
        if not _tells(span):  # else it only told of what was counted before
            amount += 1
            note_drop(f"span:{reason}", system=str(attributes.get(semconv.SYSTEM, "")))
            if not self._warned:
                self._warned = True
                _logger.warning("memtrace drops spans (%s); further ones are only counted", reason)
        with self._lock:
            trace_id = span.context.trace_id if span.context else self._sum
            if trace_id not in self._losses and len(self._losses) >= MAX_TRACES:
                trace_id = self._sum
            loss = self._losses.get(trace_id)
            if loss is None:
                alone = trace_id == self._sum
                loss = self._losses[trace_id] = _Loss(
                    0,
                    None if alone else span.parent,
                    span.start_time or 0,
                    span.end_time or 0,
                    span.resource,
                    semconv.SCOPE_PREFIX if alone else attributes.get(semconv.SYSTEM, semconv.SCOPE_PREFIX),
                    "" if alone else attributes.get(semconv.SCOPE, ""),
                )
            loss.spans += amount

    def sum_up(self) -> None:
        """Forget the traces: one span is to tell of all losses until now."""
        with self._lock:
            if len(self._losses) < 2:
                return
            losses = [self._losses.popitem()[1] for _ in range(len(self._losses))]
            self._losses[self._sum] = replace(
                losses[0],
                spans=sum(loss.spans for loss in losses),
                start=min(loss.start for loss in losses),
                end=max(loss.end for loss in losses),
                parent=None,
                system=semconv.SCOPE_PREFIX,
                scope="",
            )

    def __len__(self) -> int:
        return len(self._losses)

    def take(self, most: int = MAX_TRACES + 1) -> list[ReadableSpan]:
        """Return spans that tell of the losses of at most `most` traces (default: of all), and forget these."""
        with self._lock:
            taken = [self._losses.popitem() for _ in range(min(most, len(self._losses)))]
        return [_span(trace_id, loss) for trace_id, loss in taken]


def _tells(span: ReadableSpan) -> bool:
    """Whether a span is one of ours that tells of losses, and of nothing else."""
    reasons = (span.attributes or {}).get(semconv.INCOMPLETE)
    return isinstance(reasons, Sequence) and tuple(reasons) == (Incomplete.LOST_SPANS.value,)


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
        context=SpanContext(trace_id, _ids.generate_span_id(), False, TraceFlags(TraceFlags.SAMPLED)),
        parent=loss.parent,
        resource=loss.resource,
        attributes=attributes,
        start_time=loss.start,
        end_time=loss.end,
        instrumentation_scope=_SCOPE,
    )
