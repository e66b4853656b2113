"""A `TraceSource` over the API of a tracing backend, whatever one that is: reading by trace id, searching by time.

A backend finds the traces that hold a span of some kind in a span of time, some of them, up to a limit. So that none is
missed, a search whose result is as long as the limit is made again in halves of the time. What it finds is looked at
again here: backends differ in what exactly they match.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections import ChainMap
from collections.abc import Collection, Generator, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from copy import copy
from itertools import chain
from typing import Self
from uuid import uuid4

from memtrace_otel import settings
from memtrace_otel.model import OperationSpan, has_evaluation, is_unique, judged_traces, make_origin, ref_kind
from memtrace_otel.semconv import CHANGING_KINDS, ROOT_KINDS, Incomplete, OpKind
from memtrace_otel.sources.errors import SourceLimitError, StoreError
from memtrace_otel.sources.http import NOT_THERE, BackendApi, FailedError, RefusedError, UnreachableError
from memtrace_otel.sources.kept import KeptTraces, Told
from memtrace_otel.sources.records import may_write, near_failures, unique_refs
from memtrace_otel.sources.wanted import Wanted, named

_logger = logging.getLogger(__name__)
_SECOND = 1_000_000_000
_HOUR = 3600 * _SECOND
AT_A_TIME = 4
"""Requests."""
_WARNINGS = 10_000
"""Traces of which it is remembered that it was warned of them."""
_AHEAD = _HOUR
"""How far the clock of who writes spans may be ahead of ours."""
BEHIND = 600 * _SECOND
"""How long before a version was written, by another clock, it may seem to be read."""
_NAMES = 100
"""Origins and refs of one search."""
_MOST_PARTS = 16
"""Where all changes come to tell a few: how many parts of time that have some are looked through at most."""
_SAYING_SO = frozenset({OpKind.UPDATE, OpKind.DELETE, OpKind.CONSOLIDATE})
"""The kinds whose changes are searched first where all spans of a kind come to tell a few: of others there are many."""
_NO_WRITERS = "the writers of a record that was read by its id alone are not known: the backend cannot search for them"
_TOO_MANY = "what others did to some records is not known: too many spans would have to be looked through"

Found = Mapping[str, Collection[str]]
"""The traces that a search found, each with the ids of those of its spans that the search shows to be such ones. Of
names that a search cannot ask for, a trace without any has no such span."""


class TooMuchError(Exception):
    """A search that a backend does not answer whole for so long a time; `found` is what it did answer, `left` what is
    still to be searched for in parts of that time, where that is less."""

    def __init__(self, reason: str, found: Found | None = None, left: Wanted | None = None) -> None:
        super().__init__(reason)
        self.found = found or {}
        self.left = left


class RemoteSource(ABC):
    """Reads a backend. `keeping` makes one that asks for nothing twice; both may be shared by threads."""

    _there = "/"
    """What the API always has."""
    _finest = _SECOND
    """The shortest time (ns) that a search can be told."""
    _finds_elements = True
    """Whether a search can ask for an element of a list; else all spans of the kinds come that are asked for."""

    def __init__(self, api: BackendApi, hours: int | None = None) -> None:
        self.api = api
        self._history = (settings.SOURCE_HOURS.read() if hours is None else hours) * _HOUR
        self._kept: KeptTraces | None = None
        self._left_out: set[str] = set()
        self.incomplete: list[str] = []

    def __str__(self) -> str:
        return str(self.api)

    @abstractmethod
    def _read(self, trace_id: str) -> list[OperationSpan]:
        """Return the spans of a trace as the backend has them."""

    @abstractmethod
    def _search(self, wanted: Wanted, since: int, until: int) -> Found:
        """Return every trace with a span like `wanted` that started at `since` or later and before `until` (ns); more
        may be among them. Raises TooMuchError when the backend cannot do so for so long a time."""

    def _for_failing(self) -> Collection[Wanted]:
        """Return the searches that find every evaluation that calls an answer a failure."""
        return (Wanted(failing=True),)

    @abstractmethod
    def _at_once(self) -> int:
        """The longest time (ns) to search at once."""

    @contextmanager
    def session(self, *, cases: int = 1) -> Generator[Self]:
        """Give a reader for about `cases` failing traces; see `TraceSource`."""
        reading = copy(self)
        reading._kept = KeptTraces()
        reading.incomplete = []
        reading.api.allow(cases)
        yield reading

    def prefetch(self, trace_ids: Collection[str]) -> None:
        """Read together what the graphs of these traces will need."""
        from memtrace_otel.sources.ahead import read_ahead

        read_ahead(self, trace_ids)
        if not any(map(self.readable, trace_ids)):
            self.check_address()

    def keeping(self) -> Self:
        """Return a source that remembers what it has read: for one run over traces that change no more. What either
        learns of the backend, both know."""
        if self._kept:
            return self
        other = copy(self)
        other._kept = KeptTraces()
        return other

    def check_address(self) -> None:
        """Raise UnreachableError where what the API has is not there: another port, or a wrong path."""
        try:
            found = self.api.get(self._there, may_miss=True)
        except StoreError:  # something else is wrong
            return
        if not found:
            raise UnreachableError(str(self), f"{self._there}: HTTP 404{NOT_THERE}")

    def close(self) -> None:
        """Close what is open."""
        self.api.close()

    def trace(self, trace_id: str) -> list[OperationSpan]:
        """Return the spans of a trace, each once, by start; see `TraceSource`."""
        kept = self._kept.trace(trace_id) if self._kept else None
        return self._keep(trace_id, self._read_alone(trace_id)) if kept is None else kept

    def whole(self, trace_id: str) -> list[OperationSpan]:
        """Return the spans of a trace as `trace` does. Raises SourceLimitError also where the backend gives a part."""
        spans = self.trace(trace_id)
        if _is_part(spans):
            reason = f"trace {trace_id} is so large that only a part of it is given"
            raise SourceLimitError(str(self), reason, is_reply=True)
        return spans

    def spans(
        self,
        *,
        scope: str | None = None,
        kinds: Collection[str] = (),
        since: int | None = None,
        until: int | None = None,
    ) -> Iterator[OperationSpan]:
        """Yield the spans of a memory scope, of kinds, of a time, by start; see `TraceSource`."""
        wanted = Wanted(scopes=None if scope is None else frozenset((scope,)), kinds=frozenset(kinds))
        for first, end, found in self._searched(wanted, since, until):
            matching = (
                span
                for trace_id in found
                for span in self.trace(trace_id)
                if first <= span.start < end and wanted.holds(span)
            )
            yield from sorted(matching, key=_start)

    def readers(self, origin: str, *, kinds: Collection[str] = ()) -> list[OperationSpan]:
        """Return the spans (of any of `kinds`) that have an input version with this origin; see `TraceSource`."""
        source = self.keeping()  # what is searched is read
        written = next((span.start for span in source.trace(origin[:32]) if span.origin == origin), None)
        traces = source.find_naming((origin,), kinds, None if written is None else written - BEHIND)[origin]
        source.fetch(traces)
        wanted = Wanted(names=frozenset((origin,)), kinds=frozenset(kinds))
        return sorted((span for id in traces for span in source.readable(id) if wanted.holds(span)), key=_start)

    def writers(self, ref: str) -> list[str]:
        """Return the ids of the traces that list a variable among their outputs; see `TraceSource`."""
        found = self.find_writers((ref,)).get(ref)
        if found is None:
            found = self._kept.writing(ref) if self._kept else []
            if (
                not (found and is_unique(ref))
                and ref_kind(ref) not in ROOT_KINDS
                and _NO_WRITERS not in self.incomplete
            ):
                self.incomplete.append(_NO_WRITERS)
        return found

    def changed_elsewhere(self, spans: Collection[OperationSpan]) -> set[str]:
        """Return the ids of the traces that tell what others did to a record of these spans, see `RecordSource`; as far
        back as a memory is looked for.

        Raises SourceLimitError where too many spans would have to be looked through."""
        changed = {*unique_refs(spans), *(span.origin for span in spans if may_write(span))}
        failed = near_failures(spans)
        since = max(min((span.start for span in spans), default=0) - BEHIND, time.time_ns() - self._history)
        asked: list[tuple[set[str], Collection[str]]] = []
        limit, most_parts = None, None
        if self._finds_elements:
            asked += (changed, CHANGING_KINDS), (set(failed), ())
        else:
            asked += (changed, _SAYING_SO), (changed, CHANGING_KINDS - _SAYING_SO)
            most_parts = _MOST_PARTS
            limit = SourceLimitError(str(self), _TOO_MANY, is_reply=True) if failed else None
        told: set[str] = set()
        for names, kinds in asked:
            try:
                told.update(*self.find_naming(names, kinds, since, most_parts).values())
            except SourceLimitError as error:
                limit = error
                told.update(error.found)
        if limit is not None:
            limit.found = told
            raise limit
        return told

    def trace_ids(self, *, scope: str | None = None) -> list[str]:
        """Return the id of every trace (with a span of the scope), by the start of its first (such) span."""
        if scope is not None and self._kept and (known := self._kept.traces_of(scope)) is not None:
            return known
        if scope is not None:
            return self.find_traces((scope,))[scope]
        starts: dict[str, int] = {}
        for _, _, found in self._searched(Wanted(), None, None):
            for trace_id in found:
                if trace_id not in starts and (spans := self.trace(trace_id)):
                    starts[trace_id] = spans[0].start
        return sorted(starts, key=lambda trace_id: starts[trace_id])

    def failing(
        self, since: int, known: dict[str, None] | None = None, *, counted_since: int | None = None
    ) -> list[str]:
        """Return the ids of the traces with an answer that an evaluation calls a failure, there or in another trace,
        where that evaluation started at `since` (ns) or later; by when it did. A later one may say that it is none.

        A search finds traces with earlier ones, too: they count from `counted_since` on, since what is known is read
        no more when a search looks as far back as they are.

        Evaluations that are in `known` (by origin) are not told again, a trace of nothing else is not read again; the
        others are added to it once they are read, as are those whose trace is too large or no trace. Past what may be
        asked for the rest is left to the next time. What cannot be read keeps nothing else from being found: it is
        warned of.
        """
        searches = self._for_failing()
        wanted = Wanted(failing=True)
        counted_since = since if counted_since is None else counted_since
        found: dict[str, int] = {}
        read: dict[str, None] = {}
        seen = ChainMap(read, known or {})
        try:
            for _, _, traces in chain.from_iterable(self._searched(search, since, None) for search in searches):
                shown = {id: [make_origin(id, span_id) for span_id in span_ids] for id, span_ids in traces.items()}
                fresh = [id for id, origins in shown.items() if not origins or any(one not in seen for one in origins)]
                self.fetch(fresh)
                for trace_id in fresh:
                    spans, never = self._readable(trace_id)
                    for span in spans:
                        if wanted.holds(span) and span.start >= counted_since and span.origin not in seen:
                            for judged in judged_traces(span):
                                found[judged] = min(found.get(judged, span.start), span.start)
                    # what a search shows may not be there to read as yet
                    counted = (span for span in spans if span.start >= counted_since)
                    read |= dict.fromkeys(span.origin for span in counted if has_evaluation(span))
                    if never:
                        read |= dict.fromkeys(shown[trace_id])
        except SourceLimitError as error:
            if known is None or error.is_reply:
                raise
            _logger.warning("%s; the rest is looked for with the next search", error)
        if known is not None:  # not before: what could not be read would be missed the next time
            known.update(read)
        return sorted(found, key=lambda trace_id: (found[trace_id], trace_id))

    # --- of several at once --------------------------------------------------------------------------------------
    def find_traces(self, scopes: Collection[str]) -> dict[str, list[str]]:
        """Return the ids of the traces of each scope, by the start of the first span there."""
        starts: dict[str, dict[str, int]] = {scope: {} for scope in scopes}
        wanted = Wanted(scopes=frozenset(scopes))
        for start, _, found in self._searched(wanted, None, None):
            self.fetch(found)
            for trace_id in found:
                try:
                    spans = self.trace(trace_id)
                except SourceLimitError as error:
                    if not error.is_reply or len(scopes) > 1:  # of which one it is cannot be told
                        raise
                    for scope in scopes:
                        starts[scope].setdefault(trace_id, start)
                    continue
                for span in spans:
                    if span.scope in starts:
                        starts[span.scope].setdefault(trace_id, span.start)
        traces = {scope: sorted(first, key=lambda id, first=first: first[id]) for scope, first in starts.items()}
        if self._kept:
            self._kept.add_scopes(traces)
        return traces

    def find_writers(self, refs: Collection[str]) -> dict[str, list[str]]:
        """Return what `writers` does of each, nothing where all would have to be looked through."""
        return self.find_naming(refs, (), None) if self._finds_elements else {}

    def find_naming(
        self, names: Collection[str], kinds: Collection[str], since: int | None, most_parts: int | None = None
    ) -> dict[str, list[str]]:
        """Return the ids of the traces in which a span (of any of `kinds`, that started at `since` (ns) or later) reads
        what has an origin, or lists a ref among its outputs, for each of these names; also of those that cannot be read
        and may.

        Raises SourceLimitError, with all that were `found`, where it costs too much, or `most_parts` of time do not
        tell all; for the same names a source that keeps does so again at once.
        """
        since_ns = 0 if since is None else since
        known = {name: self._kept.naming(name, kinds, since_ns) if self._kept else None for name in names}
        found = {name: set(told.traces if told else ()) for name, told in known.items()}
        reason = next((told.limit for told in known.values() if told and told.limit), "")
        limit = SourceLimitError(str(self), reason, is_reply=True) if reason else None
        left = sorted(name for name, told in known.items() if told is None)
        at_once = _NAMES if self._finds_elements else max(1, len(left))
        for first in range(0, len(left), at_once):
            some, reason = left[first : first + at_once], ""
            try:
                self._add_naming(Wanted(kinds=frozenset(kinds), names=frozenset(some)), since, most_parts, found)
            except SourceLimitError as error:
                limit, reason = error, error.reason
                if not error.is_reply:
                    break
            if self._kept:
                self._kept.add_naming({name: Told(sorted(found[name]), since_ns, reason) for name in some}, kinds)
        if limit is not None:
            limit.found = {trace_id for trace_ids in found.values() for trace_id in trace_ids}
            raise limit
        return {name: sorted(trace_ids) for name, trace_ids in found.items()}

    def _add_naming(
        self, wanted: Wanted, since: int | None, most_parts: int | None, found: dict[str, set[str]]
    ) -> None:
        """Add to `found` the traces that name one of the names that are wanted."""
        parts = (part for _, _, part in self._searched(wanted, since, None) if part)
        for number, part in enumerate(parts):
            if number == most_parts:
                raise SourceLimitError(str(self), _TOO_MANY, is_reply=True)
            traces = [id for id, span_ids in part.items() if span_ids or self._finds_elements]
            self.fetch(traces)
            for trace_id in traces:
                spans = self.readable(trace_id)
                unsure = wanted.names if not spans or _is_part(spans) else frozenset[str]()
                naming = (named(span) for span in spans if wanted.holds(span))
                for name in wanted.names & unsure.union(*naming):
                    found[name].add(trace_id)

    def fetch(self, trace_ids: Iterable[str]) -> None:
        """Read traces that will be asked for, several at a time; of use where what is read is kept. One that cannot be
        read is warned of; who asks for it is told."""
        missing = [id for id in dict.fromkeys(trace_ids) if self._kept and self._kept.trace(id) is None]
        if len(missing) < 2:
            return
        with ThreadPoolExecutor(AT_A_TIME) as pool:
            for _ in pool.map(self.readable, missing):
                pass

    def _read_alone(self, trace_id: str) -> list[OperationSpan]:
        """Read a trace. Raises SourceLimitError where it is the one trace that cannot be read, UnreachableError where
        the backend fails at another one, too: at one that nobody has."""
        try:
            return self._read(trace_id)
        except FailedError as error:
            self._read(uuid4().hex)
            reason = error.reason
        except RefusedError as error:
            reason = error.reason
        raise SourceLimitError(str(self), reason, is_reply=True, may_pass=True)

    def readable(self, trace_id: str) -> list[OperationSpan]:
        """Return the spans of a trace, none of one that cannot be read, of which it warns once; raises what goes for
        every other one, too."""
        return self._readable(trace_id)[0]

    def _readable(self, trace_id: str) -> tuple[list[OperationSpan], bool]:
        """See `readable`; also tell whether the trace as it is can never be read whole: too large, or no trace."""
        try:
            spans = self.trace(trace_id)
            return spans, _is_part(spans)
        except UnreachableError:
            raise
        except StoreError as error:
            if isinstance(error, SourceLimitError) and not error.is_reply:
                raise
            if trace_id not in self._left_out:
                if len(self._left_out) >= _WARNINGS:
                    self._left_out.clear()
                self._left_out.add(trace_id)
                _logger.warning("trace %s is left out: %s", trace_id, error)
            return [], isinstance(error, SourceLimitError) and not error.may_pass

    def _searched(self, wanted: Wanted, since: int | None, until: int | None) -> Iterator[tuple[int, int, Found]]:
        """Yield (start, end, what was found there), earliest time first."""
        now = time.time_ns()
        first = max(now - self._history if since is None else since, 0)
        last = now + _AHEAD if until is None else until
        waiting: list[tuple[int, int, Wanted]] = []
        while last > first:
            waiting.append((max(first, last - self._at_once()), last, wanted))
            last = waiting[-1][0]
        while waiting:
            start, end, wanted = waiting.pop()
            try:
                found = self._search(wanted, start, end)
            except TooMuchError as error:
                if middle := self._middle(start, end):
                    left = error.left or wanted
                    waiting += [(middle, end, left), (start, middle, left)]
                    continue
                limit = SourceLimitError(str(self), f"too many traces within {self._finest / _SECOND:g} s: {error}")
                if not wanted.failing:
                    raise limit from None
                _logger.warning("%s: not every failing one is found", limit)
                found = error.found
            yield start, end, found

    def _middle(self, start: int, end: int) -> int | None:
        """Return where to divide a time that is searched, None when it cannot be told more finely."""
        middle = (start + end) // 2 // self._finest * self._finest
        return middle if start < middle < end else None

    def _keep(self, trace_id: str, spans: list[OperationSpan]) -> list[OperationSpan]:
        """Return the spans each once (a backend may give back what it was given twice), by start."""
        once: dict[str, OperationSpan] = {}
        for span in spans:
            once.setdefault(span.origin, span)
        ordered = sorted(once.values(), key=_start)
        if self._kept:
            self._kept.add(trace_id, ordered)
        return ordered


def _is_part(spans: Iterable[OperationSpan]) -> bool:
    return any(Incomplete.BOUNDED in span.incomplete for span in spans)


def _start(span: OperationSpan) -> int:
    return span.start
