"""The health of memories, measured in threads beside the pages: a page never waits for a large memory."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from threading import Lock, Thread

from memtrace_otel.graph import load_scope
from memtrace_otel.health import Finding, examine
from memtrace_otel.model.printable import one_line
from memtrace_otel.semconv import Incomplete
from memtrace_otel.sources import SourceError
from memtrace_otel.web.store import PageStore

MOST_SPANS = 20_000
"""Spans of a memory that a page measures."""
_PATIENCE = 0.1
"""Seconds that a page waits for the measures: a small database is measured by then."""
_DAY = 24 * 3600 * 10**9
_State = tuple[int, int, int]
"""Spans of a memory, start of the last span (ns), day of the measures."""


@dataclass(frozen=True, slots=True)
class Measured:
    """A memory with its measures, those above their thresholds first. `partial`: a part of the spans was measured."""

    scope: str
    findings: tuple[Finding, ...]
    partial: bool
    problem: str = ""
    """Why the memory could not be measured."""

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
    """The measures of every memory. A memory is measured again when the memory has new spans, and every day."""

    def __init__(self, store: PageStore) -> None:
        self._store = store
        self._found: dict[str, tuple[_State, Measured]] = {}
        self._lock = Lock()
        self._threads: dict[str, Thread] = {}

    def memories(self, thresholds: Mapping[str, float]) -> tuple[list[Measured], int]:
        """Return the memories measured so far, the worst first, and the number of all memories."""
        scopes = self._states()
        self._update("memories", scopes, thresholds)
        found = [measured for scope, (_, measured) in list(self._found.items()) if scope in scopes]
        return sorted(found, key=lambda one: (-len(one.raised), one.scope)), len(scopes)

    def memory(self, scope: str, thresholds: Mapping[str, float]) -> Measured | None:
        """Return the last measures of one memory, None when there are none yet."""
        states = self._states()
        if scope not in states:
            return Measured(scope, (), partial=False)
        self._update("memory", {scope: states[scope]}, thresholds)
        return self._found[scope][1] if scope in self._found else None

    def _states(self) -> dict[str, _State]:
        today = time.time_ns() // _DAY
        return {one["scope"]: (one["spans"], one["last"], today) for one in self._store.memories()}

    def _update(self, name: str, scopes: Mapping[str, _State], thresholds: Mapping[str, float]) -> None:
        """Start to measure the memories that changed, and wait a moment. There is one thread of each name."""
        with self._lock:
            left = {scope: state for scope, state in scopes.items() if self._found.get(scope, ((),))[0] != state}
            thread = self._threads.get(name)
            if left and (thread is None or not thread.is_alive()):
                thread = Thread(target=self._measure, args=(left, thresholds), name=f"health {name}", daemon=True)
                self._threads[name] = thread
                thread.start()
        if left and thread is not None:
            thread.join(_PATIENCE)

    def _measure(self, scopes: Mapping[str, _State], thresholds: Mapping[str, float]) -> None:
        for scope, state in scopes.items():
            try:
                self._found[scope] = state, measure(self._store, scope, thresholds)
            except SourceError as error:  # the next page tries again
                self._found[scope] = (0, 0, 0), Measured(scope, (), partial=True, problem=one_line(str(error), 300))
