"""The contract of sources was written for 1970; a backend keeps what happens now. Between them, times are moved."""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from unittest import mock

from memtrace_otel.annotate.send import send
from memtrace_otel.annotate.target import read_target
from memtrace_otel.model import OperationSpan, is_origin
from memtrace_otel.otlp import encode_request
from memtrace_otel.sources import RemoteSource
from tests.e2e.backends.service import wait_for


@dataclass(frozen=True)
class Move:
    """Times are `by` ns later, trace ids others: so that many tests share a backend. Leading zeros of ids stay."""

    by: int
    mask: int = field(default_factory=lambda: secrets.randbits(60))

    def id(self, trace_id: str) -> str:
        """The other trace id, and back."""
        return f"{int(trace_id, 16) ^ self.mask:032x}"

    def origin(self, origin: str) -> str:
        return self.id(origin[:32]) + origin[32:] if is_origin(origin) else origin

    def span(self, span: OperationSpan, by: int) -> OperationSpan:
        """The span `by` ns later, with other ids."""
        return replace(
            span,
            trace_id=self.id(span.trace_id),
            start=span.start + by,
            end=span.end + by,
            inputs=tuple(replace(variable, origin=self.origin(variable.origin)) for variable in span.inputs),
            links=tuple(replace(link, trace_id=self.id(link.trace_id)) for link in span.links),
            events=tuple(replace(event, time=event.time + by) for event in span.events),
        )

    def there(self, spans: Sequence[OperationSpan]) -> list[OperationSpan]:
        return [self.span(span, self.by) for span in spans]

    def back(self, spans: Sequence[OperationSpan]) -> list[OperationSpan]:
        return [self.span(span, -self.by) for span in spans]


class MovedSource:
    """A `TraceSource` over one that holds moved spans."""

    def __init__(self, source: RemoteSource, move: Move) -> None:
        self._source = source
        self._move = move
        self.incomplete = source.incomplete

    def trace(self, trace_id: str) -> list[OperationSpan]:
        return self._move.back(self._source.trace(self._move.id(trace_id)))

    def spans(
        self,
        *,
        scope: str | None = None,
        kinds: Collection[str] = (),
        since: int | None = None,
        until: int | None = None,
    ) -> Iterator[OperationSpan]:
        first, last = (None if time is None else time + self._move.by for time in (since, until))
        for span in self._source.spans(scope=scope, kinds=kinds, since=first, until=last):
            yield from self._move.back([span])

    def readers(self, origin: str, *, kinds: Collection[str] = ()) -> list[OperationSpan]:
        return self._move.back(self._source.readers(self._move.origin(origin), kinds=kinds))

    def writers(self, ref: str) -> list[str]:
        return [self._move.id(trace_id) for trace_id in self._source.writers(ref)]

    def changed_elsewhere(self, spans: Collection[OperationSpan]) -> set[str]:
        changed = self._source.changed_elsewhere(self._move.there(list(spans)))
        return {self._move.id(trace_id) for trace_id in changed}

    def trace_ids(self, *, scope: str | None = None) -> list[str]:
        return [self._move.id(trace_id) for trace_id in self._source.trace_ids(scope=scope)]


def export(endpoint: str, spans: Sequence[OperationSpan], headers: Mapping[str, str] | None = None) -> None:
    """Send spans by OTLP over HTTP, 500 a request."""
    given = ",".join(f"{name}={value}" for name, value in (headers or {}).items())
    with mock.patch.dict(os.environ, OTEL_EXPORTER_OTLP_PROTOCOL="http/protobuf", OTEL_EXPORTER_OTLP_HEADERS=given):
        target = read_target("traces", endpoint)
        assert target is not None
        for first in range(0, len(spans), 500):
            send(target, encode_request(spans[first : first + 500]))


def wait_until_readable(read: Callable[[str], list[OperationSpan]], spans: Sequence[OperationSpan]) -> None:
    """Wait until the traces of these spans can be read whole by id."""
    ids = {(span.trace_id, span.span_id) for span in spans}
    traces = {trace_id for trace_id, _ in ids}

    def readable() -> bool:
        return {(span.trace_id, span.span_id) for trace_id in traces for span in read(trace_id)} >= ids

    wait_for(readable, f"{len(ids)} spans that were sent can be read")
