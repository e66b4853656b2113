"""`BackendReader`: reads traces and searches spans of one tracing backend, with a cache and the bounds of a session.

A search whose result reaches the limit of the backend is made again in halves of the time, so that nothing is missed.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from copy import copy
from typing import Self
from uuid import uuid4

from memtrace_otel import settings
from memtrace_otel.model import OperationSpan
from memtrace_otel.otlp import DecodeError
from memtrace_otel.semconv import Incomplete
from memtrace_otel.sources.cache import Cache, CachedTrace
from memtrace_otel.sources.errors import SourceError
from memtrace_otel.sources.http import BackendApi, Budget, LimitError, ReplyError
from memtrace_otel.sources.query import SpanQuery

_logger = logging.getLogger(__name__)
_SECOND = 1_000_000_000
_HOUR = 3600 * _SECOND
PARALLEL = 4
"""Requests at a time."""
_AHEAD = _HOUR
"""How far (ns) the clock of a recording process may be ahead of this one."""
_SESSION_SECONDS, _CASE_SECONDS = 300, 30
_CASE_SPANS = 500_000
_LOGGED = 10_000

Found = Mapping[str, Collection[str]]
"""The traces that a search found, each with the ids of the spans that are known to match.

Where a backend cannot search for names, a trace without such a span names none of them."""


class TooMuchError(Exception):
    """A backend does not answer a search whole. `found` is what it did answer, `rest` a query for the halves."""

    def __init__(self, reason: str, found: Found | None = None, rest: SpanQuery | None = None) -> None:
        super().__init__(reason)
        self.found = found or {}
        self.rest = rest


class BackendReader(ABC):
    """What every backend shares. A new backend implements `_read`, `_search` and `_search_length`."""

    _probe = "/"
    """A path that every such backend has."""
    _finest = _SECOND
    """The shortest time (ns) of a search."""
    _finds_names = True
    """Whether a search can ask for one element of a list. If not, the search returns all spans of the kinds."""

    def __init__(self, api: BackendApi, hours: int | None = None, services: Collection[str] = ()) -> None:
        """`hours`: how far back searches go. `services`: the only services to search, where a search is of one."""
        self.incomplete: list[str] = []
        self._api = api
        self._history = (settings.SOURCE_HOURS.read() if hours is None else hours) * _HOUR
        self._named_services = sorted(services)
        self._cache: Cache | None = None
        self._cut = ""
        self._logged: set[str] = set()
        self._answered: set[bool] = set()

    def __str__(self) -> str:
        return str(self._api)

    @abstractmethod
    def _read(self, trace_id: str) -> list[OperationSpan]:
        """Return the spans of a trace as the backend has them. Raises ReplyError, DecodeError."""

    @abstractmethod
    def _search(self, query: SpanQuery, since: int, until: int) -> Found:
        """Return every trace with a span for `query` that started in [since, until) (ns); more may be among them.

        Raises TooMuchError when the backend cannot answer whole for so long a time, ReplyError."""

    @abstractmethod
    def _search_length(self) -> int:
        """Return the longest time (ns) of one search."""

    def within(self, cases: int) -> Self:
        """Return a reader with a cache, and bounds for about `cases` failing traces."""
        requests, seconds = cases * settings.SOURCE_REQUESTS.read(), _SESSION_SECONDS + cases * _CASE_SECONDS
        reader = self._with_cache()
        reader.incomplete = []
        reader._api = self._api.within(Budget(requests, seconds, cases * _CASE_SPANS))
        return reader

    def close(self) -> None:
        """Close the connections."""
        self._api.close()

    def trace(self, trace_id: str) -> list[OperationSpan]:
        """Return the spans of a trace, each once, by start."""
        trace = self._cache.trace(trace_id) if self._cache else None
        try:
            trace = trace or self._read_trace(trace_id)
        except LimitError as error:
            self._note(str(error))
            return []
        if self._cache:
            self._cache.add(trace_id, trace)
        if trace.problem:
            self._note(trace.problem)
        return trace.spans

    def fetch(self, trace_ids: Iterable[str]) -> None:
        """Read traces into the cache of the session, several at a time."""
        missing = [id for id in dict.fromkeys(trace_ids) if self._cache and self._cache.trace(id) is None]
        if len(missing) > 1:
            with ThreadPoolExecutor(PARALLEL) as pool:
                list(pool.map(self.trace, missing))

    def _with_cache(self) -> Self:
        reader = copy(self)
        reader._cache = Cache()
        return reader

    def _note(self, sentence: str) -> None:
        """Add a sentence to `incomplete`; log it once."""
        self.incomplete.append(sentence)
        if sentence not in self._logged and len(self._logged) < _LOGGED:
            self._logged.add(sentence)
            _logger.warning("%s: %s", self, sentence)

    def _cut_search(self, sentence: str) -> None:
        """Note that a search did not find everything."""
        self._cut = sentence
        self._note(sentence)

    def _read_trace(self, trace_id: str) -> CachedTrace:
        """Return the spans of a trace, each once (a backend may return a span twice), by start."""
        try:
            read = self._read(trace_id)
        except (ReplyError, DecodeError) as error:
            self._check(error)
            return CachedTrace([], f"trace {trace_id} cannot be read: {error}")
        if not read and not self._answered:
            self._check_address()
        self._answered.add(True)
        self._api.budget.take_spans(len(read))
        once: dict[str, OperationSpan] = {}
        for span in read:
            once.setdefault(span.origin, span)
        spans = sorted(once.values(), key=start_of)
        is_part = any(Incomplete.BOUNDED in span.incomplete for span in spans)
        return CachedTrace(spans, f"trace {trace_id} is too large: the backend returns a part" if is_part else "")

    def _check(self, error: Exception) -> None:
        """Raise SourceError when the backend fails at every trace, not only at one."""
        try:
            self._read(uuid4().hex)
        except (ReplyError, DecodeError):
            raise SourceError(str(self), str(error)) from None

    def _check_address(self) -> None:
        """Raise SourceError when the API is not there: another port, or a wrong path."""
        with suppress(ReplyError):
            self._api.get(self._probe)

    def _searched(self, query: SpanQuery, since: int | None, until: int | None) -> Iterator[tuple[int, int, Found]]:
        """Yield (start, end, what was found there), earliest time first. A bound ends the search with a note."""
        now = time.time_ns()
        first = max(now - self._history if since is None else since, 0)
        last = now + _AHEAD if until is None else until
        waiting: list[tuple[int, int, SpanQuery]] = []
        while last > first:
            waiting.append((max(first, last - self._search_length()), last, query))
            last = waiting[-1][0]
        while waiting:
            start, end, query = waiting.pop()
            try:
                found = self._search(query, start, end)
            except TooMuchError as error:
                if middle := self._middle(start, end):
                    rest = error.rest or query
                    waiting += [(middle, end, rest), (start, middle, rest)]
                    continue
                self._cut_search(f"not every trace is found: too many within {self._finest / _SECOND:g} s: {error}")
                found = error.found
            except ReplyError as error:
                raise SourceError(str(self), str(error)) from None
            except LimitError as error:
                self._cut_search(str(error))
                return
            yield start, end, found

    def _middle(self, start: int, end: int) -> int | None:
        """Return where to divide the time of a search, None when the time cannot be divided."""
        middle = (start + end) // 2 // self._finest * self._finest
        return middle if start < middle < end else None


def start_of(span: OperationSpan) -> int:
    """Return the start of a span, to sort by."""
    return span.start
