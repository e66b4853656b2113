"""A received request as rows, and rows as spans."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from sqlite3 import Connection
from typing import Any, NamedTuple

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

from memtrace_otel import semconv
from memtrace_otel.model import AttributeValue, OperationSpan
from memtrace_otel.otlp.decode import (
    DecodeError,
    IndexedFields,
    SpanGroup,
    check_ids,
    decode_span,
    indexed_fields,
    indexed_in,
    parse_request,
)
from memtrace_otel.otlp.mapped import leading_ids, map_span, span_bodies
from memtrace_otel.otlp.values import attributes, decode_pairs
from memtrace_otel.sources.lineage import add_to_indexes

_INT64_MAX = 2**63 - 1

Source = tuple[Mapping[str, AttributeValue], str]
"""Resource attributes and instrumentation scope name."""


class NewSpan(NamedTuple):
    """A span as far as it is read on its way into the store."""

    trace_id: str
    span_id: str
    name: str
    start: int
    instrumentation_scope: str
    fields: IndexedFields
    service: str = ""


class SpanRow(NamedTuple):
    """One span ready for the tables; `source` and `body` are protobuf bytes."""

    span: NewSpan
    source: bytes
    body: bytes


@dataclass(frozen=True, slots=True)
class Rejected:
    """A request, or the part of one, that cannot be read, as a request of its own."""

    body: bytes
    reason: str


def read_request(body: bytes) -> tuple[list[SpanRow], list[Rejected]]:
    """Return the readable spans of a request and what is not readable. Never raises."""
    try:
        groups = parse_request(body)
    except DecodeError as error:
        return [], [Rejected(body, str(error))]
    rows: list[SpanRow] = []
    rejected: list[Rejected] = []
    for group, bodies in zip(groups, span_bodies(body), strict=True):
        source, name = _request_bytes(group, []), group.scope.name
        service = _service(attributes(decode_pairs(group.resource.attributes)))
        bad: list[Span] = []
        reasons: list[str] = []
        for each in bodies:
            span = map_span(each)
            if reason := check_ids(span):
                bad.append(Span.FromString(each))
                reasons.append(reason)
                continue
            if leading_ids(each) != (span.trace_id, span.span_id):  # in an order of its own: as others are written
                each = Span.FromString(each).SerializeToString()
                span = map_span(each)
            rows.append(_row(span, each, name, service, source))
        if bad:
            rejected.append(Rejected(_request_bytes(group, bad), reasons[0]))
    return rows, rejected


def insert_rows(connection: Connection, rows: list[SpanRow]) -> dict[int, NewSpan]:
    """Insert the spans that are not there yet, inside the caller's transaction; return those by row, one behind the
    other."""
    sources: dict[bytes, int] = {}
    new: dict[int, NewSpan] = {}
    id = last_given(connection)
    for row in rows:
        if row.source not in sources:
            sources[row.source] = _source_id(connection, row.source)
        span, fields = row.span, row.span.fields
        cursor = connection.execute(
            "INSERT OR IGNORE INTO span (id, trace_id, span_id, name, kind, scope, start, source, body)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                id + 1,
                span.trace_id,
                span.span_id,
                span.name,
                fields.kind,
                fields.scope,
                span.start,
                sources[row.source],
                row.body,
            ),
        )
        if cursor.rowcount:
            id += 1
            new[id] = span
    add_to_indexes(connection, ((id, span.fields) for id, span in new.items()))
    return new


def has_span(connection: Connection, origin: str) -> bool:
    """Tell whether the span of an origin is a row."""
    query = "SELECT 1 FROM span WHERE trace_id = ? AND span_id = ?"
    return connection.execute(query, (origin[:32], origin[33:])).fetchone() is not None


def last_given(connection: Connection) -> int:
    """Return the highest row that a span was ever given, 0 when there was none."""
    return int(connection.execute(_LAST_GIVEN).fetchone()[0])


def keep_last_given(connection: Connection, id: int) -> None:
    """Note, inside the caller's transaction, that the rows up to `id` were given: who has seen those that are removed
    takes no later span for one of them."""
    connection.execute("DELETE FROM sqlite_sequence WHERE name = 'span'")
    connection.execute("INSERT INTO sqlite_sequence (name, seq) VALUES ('span', ?)", (id,))


_LAST_GIVEN = """
SELECT max(
    coalesce((SELECT max(id) FROM span), 0), coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'span'), 0)
)
"""
"""SQLite keeps that table, which anybody may write, for tables that are AUTOINCREMENT; `span` is not."""


def read_source(body: bytes) -> Source:
    """Return the shared part of spans as `insert_rows` stored it."""
    group = parse_request(body)[0]
    return attributes(decode_pairs(group.resource.attributes)), group.scope.name


def read_row(body: bytes, source: Source) -> OperationSpan:
    """Return the span of a row."""
    return decode_span(Span.FromString(body), *source)


def read_indexed(trace_id: str, span_id: str, name: str, start: int, source: Source, body: bytes) -> NewSpan:
    """Return what of a row a span is looked up by."""
    resource, instrumentation_scope = source
    fields = indexed_fields(body)
    return NewSpan(trace_id, span_id, name, start, instrumentation_scope, fields, _service(resource))


def _row(span: Any, body: bytes, instrumentation_scope: str, service: str, source: bytes) -> SpanRow:
    """Return the row of a span that `map_span` made of `body`."""
    start = min(span.start_time_unix_nano, _INT64_MAX)
    ids = span.trace_id.hex(), span.span_id.hex()
    fields = indexed_in(span, body)
    return SpanRow(NewSpan(*ids, span.name, start, instrumentation_scope, fields, service), source, body)


def _service(resource: Mapping[str, AttributeValue]) -> str:
    return str(resource.get(semconv.SERVICE_NAME, ""))


def _source_id(connection: Connection, body: bytes) -> int:
    digest = hashlib.sha256(body).digest()[:16]
    connection.execute("INSERT OR IGNORE INTO source (digest, body) VALUES (?, ?)", (digest, body))
    return int(connection.execute("SELECT id FROM source WHERE digest = ?", (digest,)).fetchone()[0])


def _request_bytes(group: SpanGroup, spans: list[Span]) -> bytes:
    scope_spans = ScopeSpans(scope=group.scope, spans=spans)
    request = ExportTraceServiceRequest(
        resource_spans=[ResourceSpans(resource=group.resource, scope_spans=[scope_spans])]
    )
    return request.SerializeToString(deterministic=True)
