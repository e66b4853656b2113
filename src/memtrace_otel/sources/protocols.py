"""What a store promises. `memtrace_otel.testing.StoreContract` holds every implementation to it.

Two protocols, because most sources are read only for us: attribution asks a `TraceSource` (SQLite here; Jaeger, Tempo
or ClickHouse elsewhere) and does not know which; only a receiver and an exporter need a `SpanStore`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

from memtrace_otel.model import OperationSpan


class TraceSource(Protocol):
    """Spans that can be asked for. Every method raises StoreError when the source cannot answer; it never guesses.

    A reader sees every span acknowledged before the call. The same span (trace and span id) is returned once, however
    often it was delivered; of two contents under one id one stays. Lists and iterators are in order of start time,
    whatever the clocks said. Continuation spans (`part` > 0) are returned as they are. What is damaged is refused,
    never left out.
    """

    def trace(self, trace_id: str) -> list[OperationSpan]:
        """Return the spans of a trace, [] when it is unknown."""
        ...

    def spans(
        self,
        *,
        scope: str | None = None,
        kinds: Collection[str] = (),
        since: int | None = None,
        until: int | None = None,
    ) -> Iterator[OperationSpan]:
        """Yield the spans of a memory scope, of any of `kinds`, started at `since` or later and before `until` (ns).

        What is not given does not restrict. Streams: memory does not grow with the number of spans.
        """
        ...

    def readers(self, origin: str, *, kinds: Collection[str] = ()) -> list[OperationSpan]:
        """Return the spans that have an input version with this origin, each once; only those of any of `kinds` where
        some are given, which many a backend finds faster."""
        ...

    def trace_ids(self, *, scope: str | None = None) -> list[str]:
        """Return the id of every trace, by the start of its first span; of those that have a span of a memory scope
        where one is given, by the start of the first such span."""
        ...


@runtime_checkable
class RecordSource(TraceSource, Protocol):
    """A source that finds what others than its owner did to a record, without looking through everything."""

    def writers(self, ref: str) -> list[str] | None:
        """Return the ids of the traces that list a variable among their outputs; a few more may be among them. None
        where that cannot be told."""
        ...

    def changed_elsewhere(self, spans: Collection[OperationSpan]) -> set[str]:
        """Return the ids of the traces in which a span of another scope, or of none, changes a record that one of these
        spans wrote, and says so by its origin or an id that is unique; and of those that read what spans near a write
        that failed produced. A few more may be among them. The spans are whole traces. Raises SourceLimitError with
        those that were `found` where not all can be."""
        ...


class SpanStore(TraceSource, Protocol):
    """A source that also takes spans. It knows what came first: of two contents under one id the first acknowledged
    stays, and equal start times are in order of arrival."""

    def add_request(self, body: bytes) -> None:
        """Keep an OTLP trace request (protobuf). When this returns the body is on disk and survives kill -9.

        The body is not read here: what cannot be decoded is set aside later, counted and never lost. Raises StoreError
        when it was not kept.
        """
        ...

    def decode(self) -> int:
        """Turn waiting requests into spans and return how many spans are new. Reading does this by itself."""
        ...


@dataclass(frozen=True, slots=True)
class StoreStats:
    """Counts of a store. `first` and `last` bound the start times of its spans in ns (0 when it has none)."""

    spans: int
    traces: int
    operations: int
    scopes: int
    waiting: int
    quarantined: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class StoredVerdict:
    """One verdict as kept: `document` is its JSON text, `created` ns since the epoch."""

    answer: str
    attribution_id: str
    document: str
    created: int
