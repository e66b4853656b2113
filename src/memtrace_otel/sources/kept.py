"""What one run has read of a backend, so that nothing is asked for twice; bounded."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Collection, Iterable
from typing import Generic, NamedTuple, TypeVar

from memtrace_otel.model import OperationSpan
from memtrace_otel.sources.records import may_write

_SPANS = 200_000
K = TypeVar("K")
V = TypeVar("V")


class Told(NamedTuple):
    """The ids of the traces that name something, as a search since a time (ns) has found them; why it found not all."""

    traces: list[str]
    since: int
    limit: str = ""


class _Kept(Generic[K, V]):
    """Values by key, each with what it counts for; the longest unused first."""

    def __init__(self) -> None:
        self._values: OrderedDict[K, tuple[V, int]] = OrderedDict()
        self.size = 0

    def __len__(self) -> int:
        return len(self._values)

    def get(self, key: K) -> V | None:
        if key not in self._values:
            return None
        self._values.move_to_end(key)
        return self._values[key][0]

    def items(self) -> list[tuple[K, V]]:
        return [(key, value) for key, (value, _) in self._values.items()]

    def put(self, key: K, value: V, items: int) -> None:
        if key in self._values:
            self.size -= self._values.pop(key)[1]
        self._values[key] = value, max(1, items)
        self.size += max(1, items)

    def drop_oldest(self) -> None:
        self.size -= self._values.popitem(last=False)[1][1]


class KeptTraces:
    """Traces read so far, and what was found by searches; of the largest kind the longest unused is forgotten first.
    Shared by threads."""

    def __init__(self, most_spans: int = _SPANS) -> None:
        self.services: list[str] | None = None
        """Those to search, None when nobody has asked for them."""
        self._most = most_spans
        self._traces = _Kept[str, list[OperationSpan]]()
        self._scopes = _Kept[str, list[str]]()
        self._naming = _Kept[tuple[str, frozenset[str]], Told]()
        self._lock = threading.Lock()

    def trace(self, trace_id: str) -> list[OperationSpan] | None:
        """Return the spans of a trace, None when it was not read or is forgotten."""
        with self._lock:
            return self._traces.get(trace_id)

    def add(self, trace_id: str, spans: list[OperationSpan]) -> None:
        """Keep a trace."""
        with self._lock:
            self._traces.put(trace_id, spans, len(spans))
            self._forget()

    def writing(self, ref: str) -> list[str]:
        """Return the ids of the traces read so far in which a span wrote a record."""
        with self._lock:
            traces = self._traces.items()
        return sorted(
            id for id, spans in traces if any(v.ref == ref and may_write(span) for span in spans for v in span.outputs)
        )

    def traces_of(self, scope: str) -> list[str] | None:
        """Return the ids of the traces of a scope, None when nobody has searched for them or they are forgotten."""
        with self._lock:
            return self._scopes.get(scope)

    def add_scopes(self, found: dict[str, list[str]]) -> None:
        """Keep what a search for scopes has found."""
        with self._lock:
            for scope, traces in found.items():
                self._scopes.put(scope, traces, len(traces))
            self._forget()

    def naming(self, name: str, kinds: Collection[str], since: int) -> Told | None:
        """Return what a search for those that name it has found, None when nobody has searched since `since` (ns) or
        earlier, or it is forgotten."""
        with self._lock:
            told = self._naming.get((name, frozenset(kinds)))
            return told if told and told.since <= since else None

    def add_naming(self, found: dict[str, Told], kinds: Iterable[str]) -> None:
        """Keep what a search for those that name something has found."""
        kinds = frozenset(kinds)
        with self._lock:
            for name, told in found.items():
                self._naming.put((name, kinds), told, len(told.traces))
            self._forget()

    def _forget(self) -> None:
        kinds = (self._traces, self._scopes, self._naming)
        while sum(kind.size for kind in kinds) > self._most:
            largest = max(kinds, key=lambda kind: kind.size)
            if len(largest) == 1:
                return
            largest.drop_oldest()
