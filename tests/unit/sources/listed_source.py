"""A backend that is a list: spans may repeat, and a search returns at most a few traces."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Self

from memtrace_otel.model import OperationSpan
from memtrace_otel.sources.http import BackendApi, Budget
from memtrace_otel.sources.query import SpanQuery
from memtrace_otel.sources.reader import Found, TooMuchError
from memtrace_otel.sources.remote import RemoteSource

EVER = 10**6
"""Hours."""


class ListedSource(RemoteSource):
    """`most` traces of one search. Reads and searches count as requests, in `asked` by trace id and `search`.

    `broken` has the error of each trace that cannot be read.
    """

    def __init__(self, hours: int | None = EVER, requests: int = 10**6) -> None:
        """`requests`: the bound of a session for each case."""
        super().__init__(BackendApi("http://listed"), hours)
        self._requests = requests
        self.told: list[OperationSpan] = []
        self.most = 10**6
        self.asked = Counter[str]()
        self.broken: dict[str, Exception] = {}

    def within(self, cases: int) -> Self:
        reader = super().within(cases)
        reader._api = self._api.within(Budget(cases * self._requests))
        return reader

    def tell(self, *requests: Sequence[OperationSpan]) -> ListedSource:
        self.told += [span for spans in requests for span in spans]
        return self

    def _read(self, trace_id: str) -> list[OperationSpan]:
        self._count(trace_id)
        if trace_id in self.broken:
            raise self.broken[trace_id]
        return [span for span in self.told if span.trace_id == trace_id]

    def _search(self, query: SpanQuery, since: int, until: int) -> Found:
        self._count("search")
        matching: dict[str, list[str]] = {}
        for span in self.told:
            if since <= span.start < until and query.matches(span):
                matching.setdefault(span.trace_id, []).append(span.span_id)
        if len(matching) >= self.most:
            raise TooMuchError(f"{self.most} or more", dict(list(matching.items())[: self.most]))
        return matching

    def _search_length(self) -> int:
        return 1 << 63

    def _check_address(self) -> None:
        pass

    def _count(self, what: str) -> None:
        self._api.budget.take_request()
        self.asked[what] += 1
