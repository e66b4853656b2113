"""Maintenance of the database file: statistics, check, prune, forget, compact.

Other processes may read and write meanwhile. Rows are deleted a few at a time, so that writers get their turn.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from sqlite3 import Connection, DatabaseError
from typing import TypeVar

from memtrace_otel.semconv import ATTRIBUTION_SCOPE
from memtrace_otel.sources.compression import decompress
from memtrace_otel.sources.database import pragma, snapshot, transaction
from memtrace_otel.sources.ingest import UNDECODABLE, decode_body, read_resource

T = TypeVar("T")
Locked = Callable[[], AbstractContextManager[Connection]]
"""Gives the connection to one thread at a time."""
_FINDINGS = 1000
_PAGE = 256
_TRACES, _SPANS = 32, 256
"""Deleted in one transaction."""
_PAUSE_SECONDS = 0.003
_LOG_SECONDS = 1.0
"""How long to wait for readers of older pages before the log is left as it is."""
_TRACE_ID = re.compile(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")


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
class ScopeStats:
    """Counts of one memory scope: its spans, their traces, bytes of their bodies, first and last start (ns)."""

    scope: str
    spans: int
    traces: int
    bytes: int
    first: int
    last: int


@dataclass(frozen=True, slots=True)
class StoreSize:
    """Bytes of the database: `used` by what it holds, `free` pages that `compact` gives back."""

    used: int
    free: int


@dataclass(frozen=True, slots=True)
class Damage:
    """A finding of `check`: `kind` is `integrity`, `dangling` or `undecodable`."""

    kind: str
    place: str
    reason: str


@dataclass(frozen=True, slots=True)
class Pruned:
    """Counts of deleted traces, spans and quarantined requests, and how many quarantined requests."""

    traces: int
    spans: int
    quarantined: int = 0


@dataclass(frozen=True, slots=True)
class Compaction:
    """Bytes by which the database became smaller, and the bytes of the log that stays because another process reads
    older pages (0: nothing stays)."""

    bytes: int
    log_bytes: int


@dataclass(frozen=True, slots=True)
class Forgotten:
    """How many spans, verdicts and quarantined requests were deleted. `log_bytes` is as in `Compaction`: more than 0
    says that the files still hold the deleted text."""

    spans: int
    verdicts: int
    quarantined: int
    log_bytes: int


def stats(connection: Connection) -> StoreStats:
    """Count what the database holds."""
    return StoreStats(*connection.execute(_STATS).fetchone())


def scopes(connection: Connection) -> list[ScopeStats]:
    """Count by memory scope, in order of the scopes; spans without a scope are not counted."""
    return [ScopeStats(*row) for row in connection.execute(_SCOPES)]


def size(connection: Connection) -> StoreSize:
    """Return the bytes of pages that hold something, and of free pages."""
    page, free = pragma(connection, "page_size"), pragma(connection, "freelist_count")
    return StoreSize((pragma(connection, "page_count") - free) * page, free * page)


def check(connection: Connection) -> list[Damage]:
    """Return the findings of SQLite's own check, rows whose counterpart is missing, and spans that cannot be decoded.

    At most 1,000 findings. Spans are decoded only in a file that SQLite finds sound: reading a damaged one may not end.
    """
    try:
        findings = [str(finding) for (finding,) in connection.execute(f"PRAGMA integrity_check({_FINDINGS})")]
    except DatabaseError as error:
        findings = [str(error)]
    if findings != ["ok"]:
        return [Damage("integrity", "file", finding) for finding in findings]
    return list(islice(_damaged_rows(connection), _FINDINGS))


def _damaged_rows(connection: Connection) -> Iterator[Damage]:
    for table, row, missing, _ in connection.execute("PRAGMA foreign_key_check").fetchall():
        yield Damage("dangling", f"{table} {row or ''}".strip(), f"a row names a {missing} that is missing")
    for id, body in connection.execute("SELECT id, body FROM resource").fetchall():
        try:
            read_resource(body)
        except UNDECODABLE as error:
            yield Damage("undecodable", f"resource {id}", str(error))
    last = 0
    while True:
        query = f"SELECT id, trace, span, body FROM span WHERE id > ? ORDER BY id LIMIT {_PAGE}"
        with snapshot(connection):
            rows = connection.execute(query, (last,)).fetchall()
        for _, trace, span, stored in rows:
            try:
                decode_body(decompress(stored), ({}, ""))
            except UNDECODABLE as error:
                yield Damage("undecodable", f"span {trace.hex()}-{span.hex()}", str(error))
        if not rows:
            return
        last = rows[-1][0]


def prune(locked: Locked, *, before: int | None, max_bytes: int | None, scope: str | None) -> Pruned:
    """Delete whole traces, the trace with the oldest last span first, with the verdicts on their answers.

    A trace is deleted when its last span started before `before` (ns), or while the database uses more than `max_bytes`
    bytes; with neither, when it is of the scope. With `scope` only traces that hold spans of this scope and of no other
    are deleted. Without `scope`, quarantined requests follow the same rule, before any trace. What was sent stays
    remembered: nothing is sent twice.
    """
    if scope is None:
        query, values = "SELECT trace, max(start) FROM span GROUP BY trace ORDER BY max(start)", ()
    else:
        query, values = _TRACES_OF_SCOPE, (scope, scope)
    everything = before is None and max_bytes is None
    quarantined = spans = traces = 0
    with locked() as connection:
        candidates = connection.execute(query, values).fetchall()
        if scope is None:
            quarantined = _prune_quarantine(connection, before, max_bytes)

    def is_wanted(connection: Connection, last: int) -> bool:
        is_old = before is not None and last < before
        return everything or is_old or (max_bytes is not None and size(connection).used > max_bytes)

    for batch in _batches(candidates, _TRACES):
        with locked() as connection, transaction(connection):
            wanted = [trace for trace, last in batch if is_wanted(connection, last)]
            for trace in wanted:
                ids = [id for (id,) in connection.execute("SELECT id FROM span WHERE trace = ?", (trace,))]
                _delete_spans(connection, ids)
                _delete_verdicts(connection, trace.hex())
                spans += len(ids)
        traces += len(wanted)
        if not wanted:
            break
    with locked() as connection:
        _delete_unused_resources(connection)
    return Pruned(traces, spans, quarantined)


def _prune_quarantine(connection: Connection, before: int | None, max_bytes: int | None) -> int:
    deleted = 0
    with transaction(connection):
        if before is not None:
            deleted += connection.execute("DELETE FROM quarantine WHERE received < ?", (before,)).rowcount
        if max_bytes is not None and size(connection).used > max_bytes:
            deleted += connection.execute("DELETE FROM quarantine").rowcount
    return deleted


def forget(locked: Locked, path: Path, scope: str) -> Forgotten:
    """Delete the memory of a scope: its spans, and the spans without a scope that may hold its text.

    These are in the traces of the scope, or read what deleted spans wrote, or are attributions that name one of these
    traces. Verdicts and quarantined requests that name one of these traces are deleted, too. Spans of other scopes
    stay. Then the file is written anew, without what was deleted. An interrupted call is completed by the next one.
    """
    with locked() as connection:
        connection.execute("PRAGMA secure_delete = ON")
        with snapshot(connection):
            ids, traces = _of_scope(connection, scope)
    for batch in _batches(sorted(ids), _SPANS):
        with locked() as connection, transaction(connection):
            _delete_spans(connection, batch)
    with locked() as connection:
        with transaction(connection):
            verdicts = _delete_verdicts_naming(connection, traces)
            quarantined = _delete_quarantine_naming(connection, scope, traces)
        _delete_unused_resources(connection)
        return Forgotten(len(ids), verdicts, quarantined, compact(connection, path).log_bytes)


def _of_scope(connection: Connection, scope: str) -> tuple[set[int], set[bytes]]:
    """Return the rows to delete for a scope, and their traces."""
    rows = connection.execute("SELECT id, trace FROM span WHERE scope = ?", (scope,)).fetchall()
    ids, traces = {id for id, _ in rows}, set[bytes]()
    new = {trace for _, trace in rows}
    fresh = set(ids)
    while new or fresh:
        traces |= new
        for trace in new:
            found = connection.execute("SELECT id FROM span WHERE trace = ? AND +scope = ''", (trace,))
            fresh |= {id for (id,) in found} - ids
        ids |= fresh
        readers = [row for id in fresh for row in connection.execute(_READERS_WITHOUT_SCOPE, (id,)).fetchall()]
        fresh = {id for id, _ in readers} - ids
        ids |= fresh
        new = {trace for _, trace in readers} - traces
    for trace in _attributions_naming(connection, traces) if traces else ():
        ids.update(id for (id,) in connection.execute("SELECT id FROM span WHERE trace = ? AND +scope = ''", (trace,)))
        traces.add(trace)
    return ids, traces


def _attributions_naming(connection: Connection, traces: Iterable[bytes]) -> set[bytes]:
    """Return the traces of our own attributions that name one of `traces`."""
    named = {trace.hex() for trace in traces}
    own: list[int] = []
    for id, body in connection.execute("SELECT id, body FROM resource").fetchall():
        with suppress(*UNDECODABLE):
            if read_resource(body)[1] == ATTRIBUTION_SCOPE:
                own.append(id)
    found: set[bytes] = set()
    query = f"SELECT trace, body FROM span WHERE resource IN ({', '.join('?' * len(own))})"
    for trace, stored in connection.execute(query, own) if own else ():
        with suppress(*UNDECODABLE):
            span = decode_body(decompress(stored), ({}, ""))
            texts = " ".join(map(str, span.attributes.values()))
            if not named.isdisjoint((*_TRACE_ID.findall(texts), *(link.trace_id for link in span.links))):
                found.add(trace)
    return found


def _delete_spans(connection: Connection, ids: Sequence[int]) -> None:
    rows = [(id,) for id in ids]
    connection.executemany("DELETE FROM variable WHERE span = ?", rows)
    connection.executemany("DELETE FROM span WHERE id = ?", rows)


def _delete_verdicts(connection: Connection, trace_id: str) -> None:
    for table in ("verdict", "review"):
        query = f"DELETE FROM {table} WHERE answer BETWEEN :trace || '-' AND :trace || '-g'"
        connection.execute(query, {"trace": trace_id})


def _delete_verdicts_naming(connection: Connection, traces: Iterable[bytes]) -> int:
    named = {trace.hex() for trace in traces}
    rows = connection.execute("SELECT attribution_id, answer || ' ' || document FROM verdict").fetchall()
    ids = [(id,) for id, text in rows if not named.isdisjoint(_TRACE_ID.findall(text))]
    connection.executemany("DELETE FROM verdict WHERE attribution_id = ?", ids)
    reviews = connection.execute("SELECT rowid, answer || ' ' || document FROM review").fetchall()
    rows_named = [(row,) for row, text in reviews if not named.isdisjoint(_TRACE_ID.findall(text))]
    connection.executemany("DELETE FROM review WHERE rowid = ?", rows_named)
    return len(ids)


def _delete_quarantine_naming(connection: Connection, scope: str, traces: Iterable[bytes]) -> int:
    names = [scope.encode(), *traces]
    rows = connection.execute("SELECT id, body FROM quarantine").fetchall()
    ids = [(id,) for id, body in rows if any(name in body for name in names)]
    connection.executemany("DELETE FROM quarantine WHERE id = ?", ids)
    return len(ids)


def _delete_unused_resources(connection: Connection) -> None:
    """Delete resources without a span. The last row stays: processes remember resources by row, and its number would be
    given again."""
    connection.execute(
        "DELETE FROM resource WHERE id NOT IN (SELECT resource FROM span) AND id < (SELECT max(id) FROM resource)"
    )


def compact(connection: Connection, path: Path) -> Compaction:
    """Write the database anew without its free pages, and empty the log."""
    before = size(connection)
    connection.execute("VACUUM")
    log_bytes = _empty_log(connection, path)
    after = size(connection)
    return Compaction(before.used + before.free - after.used - after.free, log_bytes)


def _empty_log(connection: Connection, path: Path) -> int:
    """Copy the log into the file and cut the log to nothing; return its bytes when a reader of older pages stays."""
    patience = pragma(connection, "busy_timeout")
    deadline = time.monotonic() + _LOG_SECONDS
    connection.execute("PRAGMA busy_timeout = 0")  # SQLite would wait for readers with the write lock in its hand
    try:
        while connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()[0]:
            if time.monotonic() > deadline:
                return path.with_name(f"{path.name}-wal").stat().st_size
            time.sleep(_PAUSE_SECONDS)
    finally:
        connection.execute(f"PRAGMA busy_timeout = {patience}")
    return 0


def _batches(items: Sequence[T], count: int) -> Iterator[Sequence[T]]:
    """Yield slices of `items`, with a pause between two of them for other writers."""
    for start in range(0, len(items), count):
        if start:
            time.sleep(_PAUSE_SECONDS)
        yield items[start : start + count]


_STATS = """
SELECT
    (SELECT count(*) FROM span),
    (SELECT count(DISTINCT trace) FROM span),
    (SELECT count(*) FROM span WHERE kind <> ''),
    (SELECT count(DISTINCT scope) FROM span WHERE scope <> ''),
    (SELECT count(*) FROM inbox),
    (SELECT count(*) FROM quarantine),
    (SELECT coalesce(min(start), 0) FROM span),
    (SELECT coalesce(max(start), 0) FROM span)
"""
_SCOPES = """
SELECT scope, count(*), count(DISTINCT trace), sum(length(body)), min(start), max(start)
FROM span WHERE scope <> '' GROUP BY scope ORDER BY scope
"""
_TRACES_OF_SCOPE = """
SELECT trace, max(start) FROM span
WHERE trace IN (SELECT trace FROM span WHERE scope = ?)
GROUP BY trace HAVING sum(scope NOT IN ('', ?)) = 0 ORDER BY max(start)
"""
_READERS_WITHOUT_SCOPE = """
SELECT reader.id, reader.trace FROM span AS here
CROSS JOIN variable ON variable.origin = CAST(here.trace || here.span AS BLOB) AND variable.origin <> ''
CROSS JOIN span AS reader ON reader.id = variable.span
WHERE here.id = ? AND reader.scope = ''
"""
