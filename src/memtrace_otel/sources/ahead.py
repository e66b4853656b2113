"""Reads what several failing traces will need together: a search costs about the same for fifty as for one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from itertools import islice

from memtrace_otel.model import OperationSpan, is_origin, is_unique
from memtrace_otel.semconv import OpKind
from memtrace_otel.sources.errors import SourceLimitError
from memtrace_otel.sources.remote import BEHIND, RemoteSource

TOGETHER = 50
"""Failing traces, and values of one search."""


def read_ahead(source: RemoteSource, trace_ids: Collection[str]) -> None:
    """Read, into a source that keeps, the traces, what they came from by origins, who judged their answers, the
    memories behind them, and what others did to records of these.

    Nothing depends on it: what is not read here is read when it is asked for. Raises StoreError.
    """
    try:
        source.fetch(trace_ids)
        traces = [source.readable(trace_id) for trace_id in trace_ids]
        scopes = _scopes_behind(source, [span for trace in traces for span in trace])
        answers = {span.origin: span.start for trace in traces for span in trace if span.kind == OpKind.RESPOND}
        for some in _batches(answers):
            source.find_naming(some, (OpKind.JUDGE,), min(answers[origin] for origin in some) - BEHIND)
        memories = set(trace_ids)
        for some in _batches(sorted(scopes)):
            memories.update(*source.find_traces(some).values())
        read = _read_origins(source, memories)
        source.find_writers({v.ref for span in read for v in span.inputs if not v.origin and is_unique(v.ref)})
        source.changed_elsewhere([span for trace_id in memories for span in source.readable(trace_id)])
    except SourceLimitError:
        pass  # whoever asks for the rest is told


def _scopes_behind(source: RemoteSource, spans: list[OperationSpan]) -> set[str]:
    """The scopes of these spans and of those that they came from."""
    scopes: set[str] = set()
    seen: set[str] = set()
    while spans:
        scopes.update(scope for span in spans for scope in _scopes_around(source, span))
        fresh = {v.origin for span in spans for v in span.inputs if is_origin(v.origin)} - seen
        seen |= fresh
        source.fetch(origin[:32] for origin in fresh)
        spans = [span for origin in fresh for span in _operation(source.readable(origin[:32]), origin[33:])]
    return scopes - {""}


def _scopes_around(source: RemoteSource, span: OperationSpan) -> Iterator[str]:
    """The scope of a span; without one of its own, those of its trace: it inherits one of them."""
    yield from (span.scope,) if span.scope else (other.scope for other in source.readable(span.trace_id))


def _operation(trace: Iterable[OperationSpan], span_id: str) -> list[OperationSpan]:
    """A span with its continuations."""
    return [span for span in trace if span.span_id == span_id or (span.part and span.parent_id == span_id)]


def _read_origins(source: RemoteSource, trace_ids: set[str]) -> list[OperationSpan]:
    """Read the traces that these name as origins, and so on; return the spans of all."""
    known, read = set(trace_ids), list[OperationSpan]()
    while trace_ids:
        spans = [span for trace_id in trace_ids for span in source.readable(trace_id)]
        read += spans
        trace_ids = {v.origin[:32] for span in spans for v in span.inputs if is_origin(v.origin)} - known
        known |= trace_ids
        source.fetch(trace_ids)
    return read


def _batches(values: Iterable[str]) -> Iterator[list[str]]:
    left = iter(values)
    while batch := list(islice(left, TOGETHER)):
        yield batch
