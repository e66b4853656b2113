"""The health of all memories, measured in a thread of its own: a page never waits for a large database."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock, Thread

from memtrace_otel.graph import load_scope
from memtrace_otel.health import Finding, examine
from memtrace_otel.semconv import Incomplete
from memtrace_otel.sources import SourceError
from memtrace_otel.web.store import PageStore

MOST_SPANS = 20_000
"""Spans of a memory that a page measures."""
_PATIENCE = 0.1
"""Seconds that a page waits for the measures: a small database is measured by then."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A memory with its measures, those above their thresholds first. `partial`: a part of the spans was measured."""

    scope: str
    findings: tuple[Finding, ...]
    partial: bool

    @property
    def raised(self) -> list[Finding]:
        """The measures above their thresholds."""
        return [one for one in self.findings if one.raised]


def measure(store: PageStore, scope: str, thresholds: Mapping[str, float]) -> Measured:
    """Return the measures of one memory. Raises SourceError."""
    with store.session() as reader:
        graph = load_scope(reader, scope, max_spans=MOST_SPANS)
    own = [one for one in examine(graph, 0, time.time_ns(), thresholds) if one.scope == scope]
    own.sort(key=lambda one: (not one.raised, -one.share))
    return Measured(scope, tuple(own), Incomplete.BOUNDED in graph.incomplete)


class HealthBoard:
    """The measures of every memory. A memory is measured again when its database has new spans."""

    def __init__(self, store: PageStore) -> None:
        self._store = store
        self._found: dict[str, tuple[tuple[int, int], Measured]] = {}
        self._lock = Lock()
        self._thread: Thread | None = None

    def memories(self, thresholds: Mapping[str, float]) -> tuple[list[Measured], int]:
        """Return the memories measured so far, the worst first, and the number of all memories."""
        scopes = {one["scope"]: (one["spans"], one["last"]) for one in self._store.memories()}
        with self._lock:
            left = [scope for scope, state in scopes.items() if self._found.get(scope, ((),))[0] != state]
            if left and (self._thread is None or not self._thread.is_alive()):
                given = {scope: scopes[scope] for scope in left}
                self._thread = Thread(target=self._measure, args=(given, thresholds), name="health", daemon=True)
                self._thread.start()
        if left and self._thread is not None:
            self._thread.join(_PATIENCE)
        found = [measured for scope, (_, measured) in list(self._found.items()) if scope in scopes]
        return sorted(found, key=lambda one: (-len(one.raised), one.scope)), len(scopes)

    def _measure(self, scopes: Mapping[str, tuple[int, int]], thresholds: Mapping[str, float]) -> None:
        for scope, state in scopes.items():
            try:
                self._found[scope] = state, measure(self._store, scope, thresholds)
            except SourceError:  # the page of this memory says the reason
                self._found[scope] = state, Measured(scope, (), partial=True)
