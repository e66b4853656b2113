"""`RemoteSource`: a `TraceSource` over the query API of a tracing backend. Jaeger and Tempo are subclasses.

Results of searches are filtered again here: backends differ in what they match. In a session the searches of up to 50
failing traces are made together (`prefetch`): a search for 50 costs about as much as a search for one.
"""

from __future__ import annotations

import time
from collections import ChainMap, defaultdict
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from contextlib import contextmanager
from itertools import islice
from typing import Self

from memtrace_otel.model import (
    OperationSpan,
    has_evaluation,
    is_origin,
    is_unique,
    judged_traces,
    make_origin,
    ref_kind,
)
from memtrace_otel.semconv import CHANGING_KINDS, ROOT_KINDS, OpKind
from memtrace_otel.sources.cache import CachedSearch
from memtrace_otel.sources.query import SpanQuery, may_write, names_of, near_failures, unique_refs
from memtrace_otel.sources.reader import BackendReader, start_of

_BEHIND = 600 * 1_000_000_000
"""By how much (ns) the clock of a reader may be behind the clock of the writer."""
_TOGETHER = 50
"""Scopes or answers of one search."""
_NAMES = 100
"""Origins and refs of one search."""
_MOST_PARTS = 16
"""Of a backend that cannot search for names: in how many parts of the time all changes are read at most."""
_EXPLICIT_CHANGES = frozenset({OpKind.UPDATE, OpKind.DELETE, OpKind.CONSOLIDATE})
"""The kinds that are read first there: there are fewer of these spans."""
_TOO_MANY = (
    "changes by other memories are not all known: too many spans to read; this backend cannot search for records"
)
_NO_WRITERS = (
    "the writer of a record that was read by its id alone is not known: this backend cannot search for records"
)


class RemoteSource(BackendReader):
    """Reads a backend, see `TraceSource`. Outside of a session nothing is kept or bounded."""

    def _failing_queries(self) -> Collection[SpanQuery]:
        """Return the queries that find every failing evaluation."""
        return (SpanQuery(failing=True),)

    # --- TraceSource ---------------------------------------------------------------------------------------------
    @contextmanager
    def session(self, *, cases: int = 1) -> Generator[Self]:
        """Give a reader for about `cases` failing traces: a cache, and bounds on requests, time and spans."""
        yield self.within(cases)

    def prefetch(self, trace_ids: Collection[str]) -> None:
        """Read into the cache of a session: the traces, their origins, judges and memories, changes of the memories."""
        if self._cache is None:
            return
        self.fetch(trace_ids)
        traces = [self.trace(trace_id) for trace_id in trace_ids]
        scopes = self._scopes_behind([span for trace in traces for span in trace])
        answers = {span.origin: span.start for trace in traces for span in trace if span.kind == OpKind.RESPOND}
        for some in _batches(answers):
            self.find_naming(some, (OpKind.JUDGE,), min(answers[origin] for origin in some) - _BEHIND)
        memories = set(trace_ids)
        for some in _batches(sorted(scopes)):
            memories.update(*self.find_traces(some).values())
        read = self._read_origins(memories)
        self.find_writers({v.ref for span in read for v in span.inputs if not v.origin and is_unique(v.ref)})
        self.changed_elsewhere([span for trace_id in memories for span in self.trace(trace_id)])

    def spans(
        self,
        *,
        scope: str | None = None,
        kinds: Collection[str] = (),
        since: int | None = None,
        until: int | None = None,
    ) -> Iterator[OperationSpan]:
        """Yield the spans of a memory scope, of kinds, of a time, by start."""
        query = SpanQuery(scopes=None if scope is None else frozenset((scope,)), kinds=frozenset(kinds))
        for first, end, found in self._searched(query, since, until):
            spans = (span for trace_id in found for span in self.trace(trace_id) if first <= span.start < end)
            yield from sorted(filter(query.matches, spans), key=start_of)

    def readers(self, origin: str, *, kinds: Collection[str] = ()) -> list[OperationSpan]:
        """Return the spans (of any of `kinds`) that have an input version with this origin."""
        reader = self._in_session()
        written = next((span.start for span in reader.trace(origin[:32]) if span.origin == origin), None)
        traces = reader.find_naming((origin,), kinds, None if written is None else written - _BEHIND)[origin]
        reader.fetch(traces)
        query = SpanQuery(names=frozenset((origin,)), kinds=frozenset(kinds))
        return sorted((span for id in traces for span in reader.trace(id) if query.matches(span)), key=start_of)

    def writers(self, ref: str) -> list[str]:
        """Return the ids of the traces that list a variable among their outputs."""
        return self.find_writers((ref,))[ref]

    def changed_elsewhere(self, spans: Collection[OperationSpan]) -> set[str]:
        """Return the ids of the traces in which other memories changed records of these spans, as far back as
        MEMTRACE_SOURCE_HOURS."""
        reader = self._in_session()
        changed = {*unique_refs(spans), *(span.origin for span in spans if may_write(span))}
        failed = near_failures(spans)
        since = max(min((span.start for span in spans), default=0) - _BEHIND, time.time_ns() - self._history)
        if self._finds_names:
            found = (reader.find_naming(changed, CHANGING_KINDS, since), reader.find_naming(failed, (), since))
        else:
            kinds = (_EXPLICIT_CHANGES, CHANGING_KINDS - _EXPLICIT_CHANGES)
            found = tuple(reader.find_naming(changed, some, since, _MOST_PARTS) for some in kinds)
            if failed:
                self._note(_TOO_MANY)
        return {trace_id for traces in found for some in traces.values() for trace_id in some}

    def trace_ids(self, *, scope: str | None = None) -> list[str]:
        """Return the id of every trace (with a span of the scope), by the start of its first (such) span."""
        if scope is not None:
            return self.find_traces((scope,))[scope]
        starts: dict[str, int] = {}
        for _, _, found in self._searched(SpanQuery(), None, None):
            for trace_id in found:
                if trace_id not in starts and (spans := self.trace(trace_id)):
                    starts[trace_id] = spans[0].start
        return sorted(starts, key=lambda trace_id: starts[trace_id])

    def failing(self, since: int, known: dict[str, None] | None = None) -> list[str]:
        """Return the ids of the traces with a failing evaluation that started at `since` (ns) or later, by its start.

        A trace without new evaluations is not read again. What a bound leaves out is found by the next call.
        """
        reader, query = self._in_session(), SpanQuery(failing=True)
        found: dict[str, int] = {}
        read: dict[str, None] = {}
        seen = ChainMap(read, known or {})
        for search in self._failing_queries():
            for _, _, traces in reader._searched(search, since, None):
                shown = {id: [make_origin(id, span_id) for span_id in span_ids] for id, span_ids in traces.items()}
                fresh = [id for id, origins in shown.items() if not origins or any(one not in seen for one in origins)]
                reader.fetch(fresh)
                for trace_id in fresh:
                    spans = [span for span in reader.trace(trace_id) if span.start >= since]
                    for span in filter(query.matches, spans):
                        for judged in judged_traces(span) if span.origin not in seen else ():
                            found[judged] = min(found.get(judged, span.start), span.start)
                    read |= dict.fromkeys(span.origin for span in spans if has_evaluation(span))
        if known is not None:  # after an error nothing is known: nothing was returned
            known.update(read)
        return sorted(found, key=lambda trace_id: (found[trace_id], trace_id))

    # --- several at once -----------------------------------------------------------------------------------------
    def find_traces(self, scopes: Collection[str]) -> dict[str, list[str]]:
        """Return the ids of the traces of each scope, by the start of the first span there."""

        def search(left: Collection[str]) -> dict[str, list[str]]:
            starts: dict[str, dict[str, int]] = {scope: {} for scope in left}
            for _, _, found in reader._searched(SpanQuery(scopes=frozenset(left)), None, None):
                reader.fetch(found)
                for span in (span for trace_id in found for span in reader.trace(trace_id)):
                    if span.scope in starts:
                        starts[span.scope].setdefault(span.trace_id, span.start)
            return {scope: sorted(first, key=lambda id, first=first: first[id]) for scope, first in starts.items()}

        reader = self._in_session()
        return reader._cached(search, scopes, frozenset({"scope"}), 0, len(scopes))

    def find_writers(self, refs: Collection[str]) -> dict[str, list[str]]:
        """Return the ids of the traces that list a variable among their outputs, for each of these.

        Where names cannot be searched for, these are traces of the cache. This is enough for a unique id that one of
        them writes; for any other ref `incomplete` says that writers may be missing.
        """
        if self._finds_names:
            return self.find_naming(refs, (), None)
        found = {ref: self._cache.writing(ref) if self._cache else [] for ref in refs}
        if any(not (some and is_unique(ref)) and ref_kind(ref) not in ROOT_KINDS for ref, some in found.items()):
            self._note(_NO_WRITERS)
        return found

    def find_naming(
        self, names: Collection[str], kinds: Collection[str], since: int | None, most_parts: int | None = None
    ) -> dict[str, list[str]]:
        """Return the ids of the traces in which a span (of any of `kinds`, started at `since` (ns) or later) reads an
        origin or lists a ref among its outputs, for each of these names. At most `most_parts` parts of the time with a
        result are read."""

        def search(left: Collection[str]) -> dict[str, list[str]]:
            query = SpanQuery(kinds=frozenset(kinds), names=frozenset(left))
            found: defaultdict[str, set[str]] = defaultdict(set)
            parts = (part for *_, part in reader._searched(query, since, None) if part)
            for number, part in enumerate(parts):
                if number == most_parts:
                    reader._cut_search(_TOO_MANY)
                    break
                traces = [id for id, span_ids in part.items() if span_ids or self._finds_names]
                reader.fetch(traces)
                for span in (span for trace_id in traces for span in reader.trace(trace_id)):
                    for name in query.names & names_of(span) if query.matches(span) else ():
                        found[name].add(span.trace_id)
            return {name: sorted(found[name]) for name in left}

        reader = self._in_session()
        at_once = _NAMES if self._finds_names else max(1, len(names))
        return reader._cached(search, sorted(names), frozenset(kinds), since or 0, at_once)

    # --- inside --------------------------------------------------------------------------------------------------
    def _in_session(self) -> Self:
        """Return the session; outside of one a reader with a cache of its own and without bounds."""
        return self if self._cache is not None else self._with_cache()

    def _cached(
        self,
        search: Callable[[Collection[str]], dict[str, list[str]]],
        names: Collection[str],
        kinds: frozenset[str],
        since: int,
        at_once: int,
    ) -> dict[str, list[str]]:
        """Return what `search` finds of each name, from the cache where the cache has it."""
        assert self._cache
        known = {name: found for name in names if (found := self._cache.search(name, kinds, since))}
        for problem in {found.problem for found in known.values()} - {""}:
            self._note(problem)
        left = [name for name in names if name not in known]
        for first in range(0, len(left), at_once):
            self._cut = ""
            results = search(left[first : first + at_once])
            known |= {name: CachedSearch(traces, since, self._cut) for name, traces in results.items()}
        self._cache.searches |= {(name, kinds): found for name, found in known.items()}
        return {name: known[name].traces for name in names}

    def _scopes_behind(self, spans: list[OperationSpan]) -> set[str]:
        """Return the scopes of these spans and of the spans they came from; without a scope, those of the trace."""
        scopes: set[str] = set()
        seen: set[str] = set()
        while spans:
            for span in spans:
                scopes.update((span.scope,) if span.scope else (other.scope for other in self.trace(span.trace_id)))
            fresh = {v.origin for span in spans for v in span.inputs if is_origin(v.origin)} - seen
            seen |= fresh
            self.fetch(origin[:32] for origin in fresh)
            spans = [span for origin in fresh for span in self.trace(origin[:32]) if _is_part_of(span, origin[33:])]
        return scopes - {""}

    def _read_origins(self, trace_ids: set[str]) -> list[OperationSpan]:
        """Read the traces that these name as origins, and so on; return the spans of all."""
        known, read = set(trace_ids), list[OperationSpan]()
        while trace_ids:
            spans = [span for trace_id in trace_ids for span in self.trace(trace_id)]
            read += spans
            trace_ids = {v.origin[:32] for span in spans for v in span.inputs if is_origin(v.origin)} - known
            known |= trace_ids
            self.fetch(trace_ids)
        return read


def _is_part_of(span: OperationSpan, span_id: str) -> bool:
    return span.span_id == span_id or bool(span.part and span.parent_id == span_id)


def _batches(values: Iterable[str]) -> Iterator[list[str]]:
    left = iter(values)
    while batch := list(islice(left, _TOGETHER)):
        yield batch
