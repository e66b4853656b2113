"""The contract of sources was written for 1970; a backend keeps what happens now. Between them, times are moved."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from unittest import mock

from memtrace_otel.annotate.send import send
from memtrace_otel.annotate.target import read_target
from memtrace_otel.model import OperationSpan
from memtrace_otel.otlp import encode_request
from memtrace_otel.store import RemoteSource
from tests.e2e.backends.service import wait_for


class MovedSource:
    """A `TraceSource` over another one whose times are `by` ns later."""

    def __init__(self, source: RemoteSource, by: int) -> None:
        self._source = source
        self._by = by

    def trace(self, trace_id: str) -> list[OperationSpan]:
        return [moved(span, -self._by) for span in self._source.trace(trace_id)]

    def spans(
        self,
        *,
        scope: str | None = None,
        kinds: Collection[str] = (),
        since: int | None = None,
        until: int | None = None,
    ) -> Iterator[OperationSpan]:
        first, last = (None if time is None else time + self._by for time in (since, until))
        for span in self._source.spans(scope=scope, kinds=kinds, since=first, until=last):
            yield moved(span, -self._by)

    def readers(self, origin: str, *, kinds: Collection[str] = ()) -> list[OperationSpan]:
        return [moved(span, -self._by) for span in self._source.readers(origin, kinds=kinds)]

    def trace_ids(self, *, scope: str | None = None) -> list[str]:
        return self._source.trace_ids(scope=scope)


def moved(span: OperationSpan, by: int) -> OperationSpan:
    """The same span `by` ns later."""
    events = tuple(replace(event, time=event.time + by) for event in span.events)
    return replace(span, start=span.start + by, end=span.end + by, events=events)


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
