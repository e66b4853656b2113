"""Cache of one session with a backend: traces that were read, results of searches."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection
from typing import NamedTuple

from memtrace_otel.model import OperationSpan
from memtrace_otel.sources.query import may_write

_SPANS = 200_000


class CachedTrace(NamedTuple):
    """The spans of a trace, and why they are not all of it ('' when they are)."""

    spans: list[OperationSpan]
    problem: str = ""


class CachedSearch(NamedTuple):
    """The ids of the traces that a search since a time (ns) has found, and why they are not all ('' when they are)."""

    traces: list[str]
    since: int = 0
    problem: str = ""


class Cache:
    """Traces by id, the least recently used ones dropped past `spans` spans, and searches. Shared by threads."""

    def __init__(self, spans: int = _SPANS) -> None:
        self.services: list[str] | None = None
        """The services of a backend that is searched service by service, None before they are known."""
        self.searches: dict[tuple[str, frozenset[str]], CachedSearch] = {}
        """By what is searched for (an origin, a ref, a scope) and the kinds of spans."""
        self._most = spans
        self._spans = 0
        self._traces: OrderedDict[str, CachedTrace] = OrderedDict()
        self._lock = threading.Lock()

    def trace(self, trace_id: str) -> CachedTrace | None:
        """Return a trace, None when it is not in the cache."""
        with self._lock:
            if trace_id in self._traces:
                self._traces.move_to_end(trace_id)
            return self._traces.get(trace_id)

    def add(self, trace_id: str, trace: CachedTrace) -> None:
        """Store a trace."""
        with self._lock:
            if trace_id not in self._traces:
                self._traces[trace_id] = trace
                self._spans += len(trace.spans)
            while self._spans > self._most and len(self._traces) > 1:
                self._spans -= len(self._traces.popitem(last=False)[1].spans)

    def search(self, name: str, kinds: Collection[str], since: int) -> CachedSearch | None:
        """Return the result of a search that looked back to `since` (ns) or further, None without one."""
        found = self.searches.get((name, frozenset(kinds)))
        return found if found and found.since <= since else None

    def writing(self, ref: str) -> list[str]:
        """Return the ids of the cached traces in which a span wrote a record."""
        with self._lock:
            traces = list(self._traces.items())
        return sorted(trace_id for trace_id, trace in traces if any(_writes(span, ref) for span in trace.spans))


def _writes(span: OperationSpan, ref: str) -> bool:
    return any(output.ref == ref for output in span.outputs) and may_write(span)
