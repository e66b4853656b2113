"""What one run has read of a backend, so that nothing is asked for twice; bounded."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection
from typing import Generic, TypeVar

from memtrace_otel.model import OperationSpan

_SPANS = 200_000
K = TypeVar("K")
V = TypeVar("V")


class _Lists(Generic[K, V]):
    """Lists, the longest unused first."""

    def __init__(self) -> None:
        self._lists: OrderedDict[K, list[V]] = OrderedDict()
        self.size = 0

    def __len__(self) -> int:
        return len(self._lists)

    def get(self, key: K) -> list[V] | None:
        if key in self._lists:
            self._lists.move_to_end(key)
        return self._lists.get(key)

    def put(self, key: K, items: list[V]) -> None:
        if key in self._lists:
            self.size -= max(1, len(self._lists.pop(key)))
        self._lists[key] = items
        self.size += max(1, len(items))

    def drop_oldest(self) -> None:
        self.size -= max(1, len(self._lists.popitem(last=False)[1]))


class KeptTraces:
    """Traces read so far, and what was found by searches; of the largest kind the longest unused is forgotten first.
    Shared by threads."""

    def __init__(self, most_spans: int = _SPANS) -> None:
        self._most = most_spans
        self._traces = _Lists[str, OperationSpan]()
        self._scopes = _Lists[str, str]()
        self._readers = _Lists[tuple[str, frozenset[str]], OperationSpan]()
        self._touching = _Lists[tuple[str, frozenset[str]], str]()
        self._lock = threading.Lock()

    def trace(self, trace_id: str) -> list[OperationSpan] | None:
        """Return the spans of a trace, None when it was not read or is forgotten."""
        with self._lock:
            return self._traces.get(trace_id)

    def add(self, trace_id: str, spans: list[OperationSpan]) -> None:
        """Keep a trace."""
        with self._lock:
            self._traces.put(trace_id, spans)
            self._forget()

    def traces_of(self, scope: str) -> list[str] | None:
        """Return the ids of the traces of a scope, None when nobody has searched for them or they are forgotten."""
        with self._lock:
            return self._scopes.get(scope)

    def add_scopes(self, found: dict[str, list[str]]) -> None:
        """Keep what a search for scopes has found."""
        with self._lock:
            for scope, traces in found.items():
                self._scopes.put(scope, traces)
            self._forget()

    def readers(self, origin: str, kinds: Collection[str]) -> list[OperationSpan] | None:
        """Return the readers of an origin, None when nobody has searched for them or they are forgotten."""
        with self._lock:
            return self._readers.get((origin, frozenset(kinds)))

    def add_readers(self, found: dict[str, list[OperationSpan]], kinds: Collection[str]) -> None:
        """Keep what a search for readers has found."""
        with self._lock:
            for origin, spans in found.items():
                self._readers.put((origin, frozenset(kinds)), spans)
            self._forget()

    def touching(self, name: str, kinds: Collection[str]) -> list[str] | None:
        """Return the ids of the traces that touch an origin or a ref, None when nobody has searched for them or they
        are forgotten."""
        with self._lock:
            return self._touching.get((name, frozenset(kinds)))

    def add_touching(self, found: dict[str, list[str]], kinds: Collection[str]) -> None:
        """Keep what a search for those who touch has found."""
        with self._lock:
            for name, traces in found.items():
                self._touching.put((name, frozenset(kinds)), traces)
            self._forget()

    def _forget(self) -> None:
        kinds = (self._traces, self._scopes, self._readers, self._touching)
        while sum(kind.size for kind in kinds) > self._most:
            largest = max(kinds, key=lambda kind: kind.size)
            if len(largest) == 1:
                return
            largest.drop_oldest()
