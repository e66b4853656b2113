"""Ingest: requests are committed to the inbox as received, then decoded into rows in short transactions.

Decoding costs far more than storing, and SQLite has one writer. So a batch is decoded before the write lock is taken.
Several processes may decode the same batch: the process that deletes a request from the inbox inserts its rows.
"""

from __future__ import annotations

import hashlib
import sqlite3
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from google.protobuf.message import DecodeError as ProtobufError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans, Span

from memtrace_otel.model import AttributeValue, OperationSpan, Variable, has_evaluation, is_origin
from memtrace_otel.otlp.decode import DecodeError, SpanGroup, check_ids, decode_span, parse_request
from memtrace_otel.otlp.values import attributes, decode_pairs
from memtrace_otel.sources.compression import MAX_BODY_BYTES, BodyError, compress
from memtrace_otel.sources.database import transaction
from memtrace_otel.sources.schema import INPUT, OUTPUT

BATCH_REQUESTS = 256
BATCH_BYTES = 2 << 20
"""A batch ends with the request that reaches so many bytes, so memory is bounded by the largest request."""
UNDECODABLE = (ProtobufError, DecodeError, BodyError, TypeError, ValueError)
"""Errors of decoding a stored span."""
_INT64_MAX = 2**63 - 1
_UNHEXED = bytes.fromhex

Resource = tuple[Mapping[str, AttributeValue], str]
"""Resource attributes and instrumentation scope name."""


@dataclass(frozen=True, slots=True)
class Batch:
    """What became of some requests: the spans that are new to the database, the highest row among them (0 without
    any), and how many requests, or parts of a request, were quarantined."""

    spans: list[OperationSpan]
    quarantined: int
    last: int = 0


@dataclass(frozen=True, slots=True)
class _Row:
    """A decoded span, its protobuf bytes, and those of its resource."""

    span: OperationSpan
    body: bytes
    resource: bytes


@dataclass(frozen=True, slots=True)
class _Rejected:
    """A request, or a part of one as a request of its own, that cannot be decoded."""

    body: bytes
    reason: str


def add_requests(connection: sqlite3.Connection, bodies: Iterable[bytes]) -> None:
    """Commit requests to the inbox, all or none."""
    received = time.time_ns()
    with transaction(connection):
        connection.executemany(
            "INSERT INTO inbox (body, received) VALUES (?, ?)", ((body, received) for body in bodies)
        )


def decode_batch(connection: sqlite3.Connection, most_bytes: int = BATCH_BYTES) -> Batch | None:
    """Decode the oldest requests of the inbox into rows, in one transaction; None when the inbox is empty."""
    requests = _oldest(connection, most_bytes)
    if not requests:
        return None
    decoded = [(id, received, *decode_rows(body)) for id, body, received in requests]
    new: list[OperationSpan] = []
    quarantined = last = 0
    with transaction(connection):
        for id, received, rows, rejected in decoded:
            if connection.execute("DELETE FROM inbox WHERE id = ?", (id,)).rowcount == 0:
                continue  # another process was faster
            inserted = _insert(connection, rows)
            new += inserted.values()
            last = max(last, *inserted, 0)
            quarantined += len(rejected)
            connection.executemany(
                "INSERT INTO quarantine (body, reason, received) VALUES (?, ?, ?)",
                [(part.body, part.reason, received) for part in rejected],
            )
    return Batch(new, quarantined, last)


def _oldest(connection: sqlite3.Connection, most_bytes: int) -> list[tuple[int, bytes, int]]:
    requests: list[tuple[int, bytes, int]] = []
    size = 0
    cursor = connection.execute("SELECT id, body, received FROM inbox ORDER BY id LIMIT ?", (BATCH_REQUESTS,))
    for id, body, received in cursor:
        requests.append((id, body, received))
        size += len(body)
        if size >= most_bytes:
            break
    cursor.close()  # an open cursor keeps its snapshot, and the write that follows would be refused
    return requests


def decode_rows(body: bytes) -> tuple[list[_Row], list[_Rejected]]:
    """Return the decoded spans of a request and the parts that cannot be decoded. Never raises."""
    try:
        groups = parse_request(body)
    except DecodeError as error:
        return [], [_Rejected(body, str(error))]
    rows: list[_Row] = []
    rejected: list[_Rejected] = []
    for group in groups:
        shared, resource = _request_bytes(group, []), attributes(decode_pairs(group.resource.attributes))
        bad: list[Span] = []
        reasons: list[str] = []
        for span in group.spans:
            if reason := _refusal(span):
                bad.append(span)
                reasons.append(reason)
                continue
            rows.append(_Row(decode_span(span, resource, group.scope.name), span.SerializeToString(), shared))
        if bad:
            rejected.append(_Rejected(_request_bytes(group, bad), reasons[0]))
    return rows, rejected


def _refusal(span: Span) -> str:
    if reason := check_ids(span):
        return reason
    size = span.ByteSize()
    return f"a span of {size} bytes; at most {MAX_BODY_BYTES} are stored" if size > MAX_BODY_BYTES else ""


def _insert(connection: sqlite3.Connection, rows: list[_Row]) -> dict[int, OperationSpan]:
    """Insert the spans that are not there yet, inside the caller's transaction; return these by row."""
    resources: dict[bytes, int] = {}
    new: dict[int, OperationSpan] = {}
    for row in rows:
        if row.resource not in resources:
            resources[row.resource] = _resource_id(connection, row.resource)
        span = row.span
        cursor = connection.execute(
            'INSERT OR IGNORE INTO span (trace, span, parent, part, kind, scope, start, "end", evaluates, resource,'
            " body) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                _UNHEXED(span.trace_id),
                _UNHEXED(span.span_id),
                _UNHEXED(span.parent_id),
                span.part,
                span.kind,
                span.scope,
                min(span.start, _INT64_MAX),
                min(span.end, _INT64_MAX),
                int(has_evaluation(span)),
                resources[row.resource],
                compress(row.body),
            ),
        )
        if cursor.rowcount:
            new[int(cursor.lastrowid or 0)] = span
    connection.executemany(
        "INSERT INTO variable (span, direction, position, ref, origin, role, action, digest)"
        " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        (
            values
            for id, span in new.items()
            for direction, variables in ((INPUT, span.inputs), (OUTPUT, span.outputs))
            for position, variable in enumerate(variables)
            for values in (_variable(id, direction, position, variable),)
        ),
    )
    return new


def _variable(id: int, direction: int, position: int, variable: Variable) -> tuple[object, ...]:
    origin = pack_origin(variable.origin) if direction == INPUT and variable.origin else ""
    return (id, direction, position, variable.ref, origin, variable.role, variable.action, _packed_hex(variable.digest))


def pack_origin(origin: str) -> bytes | str:
    """Return an origin as the 24 bytes of its ids; a text of another form stays as it is."""
    return _UNHEXED(origin[:32] + origin[33:]) if is_origin(origin) else origin


def _packed_hex(text: str) -> bytes | str:
    try:
        packed = _UNHEXED(text)
    except ValueError:
        return text
    return packed if packed.hex() == text else text


def _resource_id(connection: sqlite3.Connection, body: bytes) -> int:
    digest = hashlib.sha256(body).digest()[:16]
    connection.execute("INSERT OR IGNORE INTO resource (digest, body) VALUES (?, ?)", (digest, body))
    return int(connection.execute("SELECT id FROM resource WHERE digest = ?", (digest,)).fetchone()[0])


def _request_bytes(group: SpanGroup, spans: list[Span]) -> bytes:
    scope_spans = ScopeSpans(scope=group.scope, spans=spans)
    request = ExportTraceServiceRequest(
        resource_spans=[ResourceSpans(resource=group.resource, scope_spans=[scope_spans])]
    )
    return request.SerializeToString(deterministic=True)


def read_resource(body: bytes) -> Resource:
    """Return the resource attributes and the scope name of a row of `resource`. Raises one of UNDECODABLE."""
    groups = parse_request(body)
    if not groups:
        raise DecodeError("a resource without a group of spans")
    return attributes(decode_pairs(groups[0].resource.attributes)), groups[0].scope.name


def decode_body(body: bytes, resource: Resource) -> OperationSpan:
    """Return the span of a decompressed body. Raises one of UNDECODABLE."""
    return decode_span(Span.FromString(body), *resource)
