"""`prune`: whole traces go, the oldest first, in short transactions."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import islice
from sqlite3 import Connection

from google.protobuf.message import DecodeError
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from memtrace_otel.model import make_origin
from memtrace_otel.otlp.decode import indexed_fields
from memtrace_otel.store.connection import transaction
from memtrace_otel.store.space import size
from memtrace_otel.store.upkeep import Pruned

_BATCH = 64
_OF_SCOPE = "WHERE trace_id IN (SELECT trace_id FROM span WHERE scope = ?)"


@dataclass(frozen=True, slots=True)
class Retention:
    """What may go; see `StoreUpkeep.prune`."""

    before: int | None
    max_bytes: int | None
    scope: str | None

    def applies(self, connection: Connection, last: int) -> bool:
        """Tell whether a trace whose last span started at `last` goes."""
        if self.before is None and self.max_bytes is None:
            return True
        if self.before is not None and last < self.before:
            return True
        return self.max_bytes is not None and size(connection).used > self.max_bytes


def prune(connection: Connection, retention: Retention) -> Pruned:
    """Remove what `retention` applies to; a failure keeps what was removed so far removed."""
    of_scope = retention.scope is not None
    query = f"SELECT trace_id FROM span {_OF_SCOPE if of_scope else ''} GROUP BY trace_id ORDER BY max(start)"
    traces = iter(connection.execute(query, (retention.scope,) if of_scope else ()).fetchall())
    pruned, spans = 0, 0
    while batch := list(islice(traces, _BATCH)):
        with transaction(connection):
            for (trace_id,) in batch:
                removed = _prune_trace(connection, trace_id, retention)
                pruned, spans = pruned + bool(removed), spans + removed
    if retention.before is not None and not of_scope:
        connection.execute("DELETE FROM quarantine WHERE received < ?", (retention.before,))
    return Pruned(pruned, spans)


def _prune_trace(connection: Connection, trace_id: str, retention: Retention) -> int:
    query = "SELECT id, span_id, scope, start, body FROM span WHERE trace_id = ?"
    rows = connection.execute(query, (trace_id,)).fetchall()
    if not rows or not retention.applies(connection, max(start for _, _, _, start, _ in rows)):
        return 0
    going = {scope for _, _, scope, _, _ in rows}
    if retention.scope is not None:
        going = going & {retention.scope} if going - {retention.scope, ""} else going
    removed = [(id, span_id, body) for id, span_id, scope, _, body in rows if scope in going]
    for id, span_id, body in removed:
        connection.execute("DELETE FROM verdict WHERE answer = ?", (make_origin(trace_id, span_id),))
        _remove_reader(connection, id, body)
        connection.execute("DELETE FROM span WHERE id = ?", (id,))
    return len(removed)


def _remove_reader(connection: Connection, id: int, body: bytes) -> None:
    """Readers are found by what they read; one that cannot be decoded only by looking through all."""
    try:
        keys = [(origin, id) for origin in indexed_fields(Span.FromString(body)).origins]
    except DecodeError:
        connection.execute("DELETE FROM reader WHERE span = ?", (id,))
    else:
        connection.executemany("DELETE FROM reader WHERE origin = ? AND span = ?", keys)
