"""What one run has read of a backend, so that nothing is asked for twice; bounded."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection

from memtrace_otel.model import OperationSpan

_SPANS = 200_000


class KeptTraces:
    """Traces read so far, the longest unused forgotten first; and what was found by searches. Shared by threads."""

    def __init__(self, most_spans: int = _SPANS) -> None:
        self._left = most_spans
        self._traces: OrderedDict[str, list[OperationSpan]] = OrderedDict()
        self._scopes: dict[str, list[str]] = {}
        self._readers: dict[tuple[str, frozenset[str]], list[OperationSpan]] = {}
        self._lock = threading.Lock()

    def trace(self, trace_id: str) -> list[OperationSpan] | None:
        """Return the spans of a trace, None when it was not read or is forgotten."""
        with self._lock:
            if trace_id in self._traces:
                self._traces.move_to_end(trace_id)
            return self._traces.get(trace_id)

    def add(self, trace_id: str, spans: list[OperationSpan]) -> None:
        """Keep a trace."""
        with self._lock:
            self._left += len(self._traces.pop(trace_id, ())) - len(spans)
            self._traces[trace_id] = spans
            while self._left < 0 and len(self._traces) > 1:
                self._left += len(self._traces.popitem(last=False)[1])

    def traces_of(self, scope: str) -> list[str] | None:
        """Return the ids of the traces of a scope, None when nobody has searched for them."""
        return self._scopes.get(scope)

    def add_scopes(self, found: dict[str, list[str]]) -> None:
        """Keep what a search for scopes has found."""
        self._scopes.update(found)

    def readers(self, origin: str, kinds: Collection[str]) -> list[OperationSpan] | None:
        """Return the readers of an origin, None when nobody has searched for them."""
        return self._readers.get((origin, frozenset(kinds)))

    def add_readers(self, found: dict[str, list[OperationSpan]], kinds: Collection[str]) -> None:
        """Keep what a search for readers has found."""
        self._readers.update({(origin, frozenset(kinds)): spans for origin, spans in found.items()})
