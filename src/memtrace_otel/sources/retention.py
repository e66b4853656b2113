"""`prune`: whole traces go, the oldest first, in short transactions."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from sqlite3 import Connection
from typing import NamedTuple

from google.protobuf.message import DecodeError
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from memtrace_otel import semconv
from memtrace_otel.model import make_origin
from memtrace_otel.otlp.decode import indexed_fields
from memtrace_otel.semconv import OpKind
from memtrace_otel.sources.bodies import UNDECODABLE, Bodies
from memtrace_otel.sources.connection import Locked, file_of, in_turns, pragma, transaction
from memtrace_otel.sources.errors import StoreError
from memtrace_otel.sources.lineage import readers_of, remove_from_indexes
from memtrace_otel.sources.rows import has_span, keep_last_given, last_given
from memtrace_otel.sources.runs import drop_unused_dictionaries
from memtrace_otel.sources.space import size
from memtrace_otel.sources.streams import release_streams
from memtrace_otel.sources.upkeep import Pruned

_BATCH = 32
_NOTHING = b"\xff"
"""No span."""
_OF_SCOPE = "WHERE trace_id IN (SELECT trace_id FROM span WHERE scope = ?)"


@dataclass(frozen=True, slots=True)
class Retention:
    """What may go; see `StoreUpkeep.prune`."""

    before: int | None
    max_bytes: int | None
    scope: str | None

    def applies(self, connection: Connection, last: int) -> bool:
        """Tell whether a trace whose last span started at `last`, or an unreadable request of that time, goes."""
        if self.before is None and self.max_bytes is None:
            return True
        if self.before is not None and last < self.before:
            return True
        return self.max_bytes is not None and size(connection).used > self.max_bytes


def prune(locked: Locked, retention: Retention) -> Pruned:
    """Remove what `retention` applies to; a failure keeps what was removed so far removed."""
    of_scope = retention.scope is not None
    query = f"SELECT trace_id FROM span {_OF_SCOPE if of_scope else ''} GROUP BY trace_id ORDER BY max(start)"
    with locked() as connection:
        _check_limit(connection, retention)
    unreadable = 0 if of_scope else _drop_unreadable(locked, retention)
    with locked() as connection:
        traces = connection.execute(query, (retention.scope,) if of_scope else ()).fetchall()
        targets = [target for (target,) in connection.execute("SELECT DISTINCT target FROM sent").fetchall()]
        attributions = _attributions(connection)
    touched: set[str] = set()
    spans = 0

    def remove(connection: Connection, batch: Sequence[tuple[str]]) -> None:
        nonlocal spans
        for (trace_id,) in batch:
            going = _about(connection, _going(connection, trace_id, retention), attributions)
            _remove(connection, going, targets)
            touched.update(span.trace_id for span in going)
            spans += len(going)
        if retention.max_bytes is not None:  # else they count as used until the end, and more traces go for it
            drop_unused_dictionaries(connection)

    in_turns(locked, traces, _BATCH, remove)
    if spans:
        with locked() as connection, transaction(connection):
            drop_unused_dictionaries(connection)
    return Pruned(len(touched), spans, unreadable)


def _check_limit(connection: Connection, retention: Retention) -> None:
    """Raise StoreError when no number of traces is enough: what stays takes more than `max_bytes`."""
    limit = retention.max_bytes
    if limit is None or size(connection).used <= limit:
        return
    tables, resources, unreadable = connection.execute(_STAYING).fetchone()
    staying = {"empty tables": tables * pragma(connection, "page_size"), "resources of spans": resources}
    if retention.scope is not None:
        staying["unreadable requests"] = unreadable
    if sum(staying.values()) > limit:
        parts = ", ".join(f"{what} {taken} bytes" for what, taken in staying.items())
        reason = f"nothing removed: what prune does not remove takes more than {limit} bytes ({parts})"
        raise StoreError(file_of(connection), f"{reason}; `memtrace-otel store compact` removes unused resources")


def _drop_unreadable(locked: Locked, retention: Retention) -> int:
    """Remove the oldest requests in quarantine that `retention` applies to; return how many."""
    with locked() as connection:
        rows = connection.execute("SELECT id, received FROM quarantine ORDER BY received, id").fetchall()
    gone = 0

    def remove(connection: Connection, batch: Sequence[tuple[int, int]]) -> None:
        nonlocal gone
        for id, received in batch:
            if retention.applies(connection, received):
                gone += connection.execute("DELETE FROM quarantine WHERE id = ?", (id,)).rowcount

    in_turns(locked, rows, _BATCH, remove)
    return gone


class _Span(NamedTuple):
    """What of a row is needed to remove it."""

    id: int
    trace_id: str
    span_id: str
    body: bytes

    @property
    def origin(self) -> str:
        return make_origin(self.trace_id, self.span_id)


def _going(connection: Connection, trace_id: str, retention: Retention) -> list[_Span]:
    """Return the spans of a trace that go."""
    query = "SELECT id, span_id, scope, start, body FROM span WHERE trace_id = ?"
    rows = connection.execute(query, (trace_id,)).fetchall()
    if not rows or not retention.applies(connection, max(start for _, _, _, start, _ in rows)):
        return []
    scopes = {scope for _, _, scope, _, _ in rows}
    if retention.scope is not None:
        scopes = scopes & {retention.scope} if scopes - {retention.scope, ""} else scopes
    return _spans(
        connection, [(id, trace_id, span_id, body) for id, span_id, scope, _, body in rows if scope in scopes]
    )


def _spans(connection: Connection, rows: Iterable[tuple[int, str, str, bytes]]) -> list[_Span]:
    """Unpack rows; what cannot be goes all the same."""
    bodies = Bodies(connection)
    spans: list[_Span] = []
    for id, trace_id, span_id, stored in rows:
        try:
            stored = bodies.read(stored, trace_id, span_id)
        except UNDECODABLE:
            stored = _NOTHING
        spans.append(_Span(id, trace_id, span_id, stored))
    return spans


def _about(connection: Connection, going: list[_Span], attributions: Mapping[str, list[str]]) -> list[_Span]:
    """Return what is said of these spans in other traces: judgements of nothing else, and attributions."""
    found = {span.id: span for span in going}
    origins = {span.origin for span in going}
    for origin in origins:
        for id in readers_of(connection, origin):
            for span in _spans(connection, connection.execute(_JUDGE, (id, OpKind.JUDGE)).fetchall()):
                read = _origins(span.body)  # without `origin` when its number is that of another name
                if origin in read and all(o in origins or not has_span(connection, o) for o in read):
                    found[span.id] = span
        for trace_id in attributions.get(origin, ()):
            for span in _spans(connection, connection.execute(_TRACE, (trace_id,)).fetchall()):
                found[span.id] = span
    return list(found.values())


def _attributions(connection: Connection) -> Mapping[str, list[str]]:
    """Return the attribution traces, also of replaced verdicts, by the answer that they are about."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for root in _spans(connection, connection.execute(_ROOTS, (semconv.ATTRIBUTION_ROOT_SPAN,)).fetchall()):
        with suppress(DecodeError):
            for link in Span.FromString(root.body).links:
                found[make_origin(link.trace_id.hex(), link.span_id.hex())].append(root.trace_id)
    return found


def _remove(connection: Connection, spans: Sequence[_Span], targets: Iterable[str]) -> None:
    if spans:
        keep_last_given(connection, last_given(connection))
    for span in spans:
        connection.execute("DELETE FROM verdict WHERE answer = ?", (span.origin,))
        connection.executemany(
            "DELETE FROM sent WHERE target = ? AND span_id = ?", [(target, span.span_id) for target in targets]
        )
        remove_from_indexes(connection, span.id, span.body)
        release_streams(connection, span.id)
        connection.execute("DELETE FROM span WHERE id = ?", (span.id,))


def _origins(body: bytes) -> set[str]:
    try:
        return indexed_fields(body).origins
    except DecodeError:
        return set()


_STAYING = """
SELECT
    (SELECT count(*) + 1 FROM sqlite_master WHERE rootpage > 0),
    (SELECT coalesce(sum(length(body) + 2 * length(digest)), 0) FROM source),
    (SELECT coalesce(sum(length(body)), 0) FROM quarantine)
"""
"""Pages of tables and indexes without rows; bytes."""
_COLUMNS = "id, trace_id, span_id, body"
_JUDGE = f"SELECT {_COLUMNS} FROM span WHERE id = ? AND kind = ?"
_TRACE = f"SELECT {_COLUMNS} FROM span WHERE trace_id = ?"
_ROOTS = f"SELECT {_COLUMNS} FROM span WHERE kind = '' AND scope = '' AND name = ?"
