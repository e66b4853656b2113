"""By which names others may know of the records that spans wrote."""

from __future__ import annotations

from collections.abc import Iterable

from memtrace_otel.model import OperationSpan, is_unique, make_origin
from memtrace_otel.semconv import READING_KINDS, WRITING_ACTIONS


def may_write(span: OperationSpan) -> bool:
    """Tell whether a span may have written a record, itself or on a continuation."""
    if span.kind in READING_KINDS:
        return any(output.action in WRITING_ACTIONS for output in span.outputs)
    return bool(span.kind or span.outputs)


def unique_refs(spans: Iterable[OperationSpan]) -> set[str]:
    """Return the refs among their outputs that mean one thing in all memories."""
    return {output.ref for span in spans for output in span.outputs if is_unique(output.ref)}


def near_failures(spans: Iterable[OperationSpan]) -> list[str]:
    """Return the origins of all spans of the traces in which a write failed: who read what it left all the same may
    name a part of it."""
    spans = list(spans)
    writers = [span for span in spans if span.outputs]
    listing = {make_origin(span.trace_id, span.parent_id) if span.part else span.origin for span in writers}
    failed = {s.trace_id for s in spans if s.status == "error" and may_write(s) and s.origin in listing}
    return [span.origin for span in spans if span.trace_id in failed]
