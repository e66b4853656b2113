"""Markers: short spans that show a verdict inside traces stored long ago."""

from __future__ import annotations

from collections.abc import Mapping

from memtrace_otel import semconv, settings
from memtrace_otel.annotate.attributes import clip, incomplete, verdict_attributes
from memtrace_otel.annotate.identity import span_id
from memtrace_otel.model import AttributeValue, Link, OperationSpan, Verdict

STATUS_BYTES = 200
_WIDTH = 1000
"""Nanoseconds a marker lasts. Backends work in microseconds, and Jaeger warns of a span that has no duration."""
_LAST_NANOSECOND = 2**64 - 1
"""The latest time that OTLP can hold."""


def marker(verdict: Verdict, decisive: OperationSpan | None) -> OperationSpan:
    """Return the marker in the failing trace, child of the decisive operation if it is there, else of the answer.

    Its resource is that of the failing span, so that a search by the failing service finds the trace.
    """
    answer = verdict.failure.answer_span
    here = decisive is not None and decisive.trace_id == answer.trace_id
    parent = decisive if decisive is not None and here else answer
    return _mark(verdict, parent, answer.resource, () if here else _to_decisive(verdict))


def causing_marker(verdict: Verdict, decisive: OperationSpan | None) -> OperationSpan | None:
    """Return the marker under a decisive operation of another trace, None when there is no such operation.

    Its resource is that of the operation, but the service is ours: a search by the application's service and
    `memtrace.failure.type` then finds the traces that failed, and no failure counts twice in its error rate. Only the
    canary's keeps the service of the canary, by which lists leave it out.
    """
    answer = verdict.failure.answer_span
    if decisive is None or decisive.trace_id == answer.trace_id:
        return None
    service = decisive.service if decisive.service == semconv.CANARY_SERVICE else semconv.ATTRIBUTION_SERVICE
    resource = {**decisive.resource, semconv.SERVICE_NAME: service}
    return _mark(verdict, decisive, resource, (link(answer.trace_id, answer.span_id, semconv.LinkType.EVALUATES),))


def link(trace_id: str, span_id: str, kind: semconv.LinkType, *refs: str) -> Link:
    """Return a link of the contract: its type, and the refs it is about when there are any."""
    attributes: dict[str, AttributeValue] = {semconv.LINK_TYPE: kind.value}
    if refs:
        attributes[semconv.LINK_REFS] = list(refs)
    return Link(trace_id, span_id, attributes)


def _to_decisive(verdict: Verdict) -> tuple[Link, ...]:
    if not verdict.span_id:
        return ()
    refs = (verdict.variable,) if verdict.variable else ()
    return (link(verdict.trace_id, verdict.span_id, semconv.LinkType.ATTRIBUTED_TO, *refs),)


def _mark(
    verdict: Verdict, parent: OperationSpan, resource: Mapping[str, AttributeValue], links: tuple[Link, ...]
) -> OperationSpan:
    start, end = _last_moment(parent)
    attributes = verdict_attributes(verdict)
    red = settings.MARKER_STATUS.read().strip().lower() != "unset"
    return OperationSpan(
        trace_id=parent.trace_id,
        span_id=span_id(verdict, parent.origin),
        parent_id=parent.span_id,
        name=f"{semconv.MARKER_SPAN} {verdict.failure_type}",
        start=start,
        end=end,
        status="error" if red else "unset",
        status_message=f"{verdict.failure_type}: {clip(verdict.reason, STATUS_BYTES)}" if red else "",
        incomplete=incomplete(verdict, attributes),
        attributes=attributes,
        resource=resource,
        instrumentation_scope=semconv.ATTRIBUTION_SCOPE,
        links=links,
    )


def _last_moment(parent: OperationSpan) -> tuple[int, int]:
    """Return the last microsecond inside the parent, or the whole of a shorter parent.

    A parent without duration gives the nanosecond after it: that is how long Jaeger takes such a parent to be.
    """
    if parent.end <= parent.start:
        start = min(parent.start, _LAST_NANOSECOND - 1)
        return start, start + 1
    return max(parent.start, parent.end - _WIDTH), parent.end
