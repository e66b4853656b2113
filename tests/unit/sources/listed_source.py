"""A backend that is a list: it gives back what it was told, repeats included, and never more than a few at once."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from memtrace_otel.model import OperationSpan
from memtrace_otel.sources.http import Address, BackendApi, Bounds
from memtrace_otel.sources.remote import Found, RemoteSource, TooMuchError
from memtrace_otel.sources.wanted import Wanted

EVER = 10**6
"""Hours."""


class ListedSource(RemoteSource):
    """`most` traces at once. Reads and searches are counted as requests are, in `asked` by trace id and `search`."""

    def __init__(self, api: BackendApi | None = None, hours: int | None = EVER) -> None:
        super().__init__(api or BackendApi(Address(False, "listed", 1), bounds=Bounds(requests=10**6)), hours)
        self.told: list[OperationSpan] = []
        self.most = 10**6
        self.asked = Counter[str]()

    def tell(self, *requests: Sequence[OperationSpan]) -> ListedSource:
        self.told += [span for spans in requests for span in spans]
        return self

    def _read(self, trace_id: str) -> list[OperationSpan]:
        self._count(trace_id)
        return [span for span in self.told if span.trace_id == trace_id]

    def _search(self, wanted: Wanted, since: int, until: int) -> Found:
        self._count("search")
        matching: dict[str, list[str]] = {}
        for span in self.told:
            if since <= span.start < until and wanted.holds(span):
                matching.setdefault(span.trace_id, []).append(span.span_id)
        if len(matching) >= self.most:
            raise TooMuchError(f"{self.most} or more", dict(list(matching.items())[: self.most]))
        return matching

    def _at_once(self) -> int:
        return 1 << 63

    def _count(self, what: str) -> None:
        self.api._count_request()
        self.asked[what] += 1
