"""The embedded store: one SQLite file that several processes read and write at once."""

from __future__ import annotations

import json
import logging
import math
import os
import threading
from collections.abc import Callable, Collection, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, nullcontext
from itertools import islice
from pathlib import Path
from sqlite3 import Connection, DatabaseError
from typing import Any, Literal, Self

from memtrace_otel.model import OperationSpan, make_origin
from memtrace_otel.semconv import OpKind
from memtrace_otel.sources import forgetting, ledger, retention, space
from memtrace_otel.sources.bodies import UNDECODABLE, Bodies
from memtrace_otel.sources.connection import TranslatedErrors, connect, copy_log_every, is_corrupt, snapshot
from memtrace_otel.sources.damage import find_damage
from memtrace_otel.sources.errors import DamagedError, StoreError
from memtrace_otel.sources.heads import Head
from memtrace_otel.sources.inbox import Batch, add_bodies, drain_batch, waiting
from memtrace_otel.sources.lineage import (
    changed_elsewhere,
    reader_scopes,
    readers_of,
    writer_scopes,
    writers_before,
    writers_of,
)
from memtrace_otel.sources.migrations import migrate
from memtrace_otel.sources.outlines import Outline, read_outline
from memtrace_otel.sources.protocols import StoredVerdict, StoreStats
from memtrace_otel.sources.records import may_write, near_failures, unique_refs
from memtrace_otel.sources.rows import NewSpan, Source, has_span, read_indexed, read_row, read_source
from memtrace_otel.sources.schema import INDEXED_KINDS
from memtrace_otel.sources.streams import NUMBER_BITS
from memtrace_otel.sources.turn import Turn
from memtrace_otel.sources.upkeep import Compaction, Damage, Forgotten, Pruned, ScopeStats, StoreSize
from memtrace_otel.sources.wanted import find_failing

_logger = logging.getLogger(__name__)
_PAGE = 256
_PAGE_BYTES = 4 << 20
_SOURCES = 4096
_FINDINGS = 1000


class SqliteStore:
    """A `StoreUpkeep` (see there for the promises) that also remembers verdicts and what was sent where.

    May be shared by threads, not across a fork.
    """

    def __init__(self, connection: Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        self._absolute = path.absolute()
        self._file = _file_at(self._absolute)
        self._lock = threading.RLock()
        self._turn = Turn(path)
        self._sources: dict[int, Source] = {}
        self.incomplete: list[str] = []
        self._bodies = Bodies(connection)

    @classmethod
    def open(cls, path: str | Path, create: bool = True) -> Self:
        """Open the database file. Raises StoreError when it cannot be opened, is not ours or is of another version."""
        path = Path(path)
        connection = connect(path, create=create)
        try:
            migrate(connection, path)
        except BaseException:
            connection.close()
            raise
        return cls(connection, path)

    def copy_log_every(self, pages: int) -> None:
        """Copy the log into the file when a commit of this store finds so many pages in it."""
        with self._locked() as connection:
            copy_log_every(connection, pages)

    def close(self) -> None:
        """Close the file; the store is of no use afterwards."""
        with self._locked() as connection:
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def add_request(self, body: bytes) -> None:
        """Commit an OTLP trace request to the inbox, on disk when this returns."""
        self.add_requests((body,))

    def add_requests(self, bodies: Iterable[bytes]) -> None:
        """Commit several requests, all or none. Raises StoreError also where the file is no longer at its path."""
        self._check_place()  # else who sends again fills what nobody finds
        with self._locked() as connection:
            add_bodies(connection, bodies)
        self._check_place()

    def is_in_place(self) -> bool:
        """Tell whether the path still leads to the file that is open: nobody finds what another one is given."""
        return _file_at(self._absolute) == self._file

    def _check_place(self) -> None:
        if not self.is_in_place():
            raise StoreError(self._path, _NOT_IN_PLACE)

    def decode(self) -> int:
        """Turn waiting requests into spans; return how many are new to the store."""
        new = 0
        while (batch := self.decode_batch()) is not None:
            new += len(batch.spans)
        return new

    def decode_batch(self) -> Batch | None:
        """Turn the oldest waiting requests into spans, in one transaction; None when nothing waits."""
        with self._locked() as connection:
            return drain_batch(connection)

    def waiting_bytes(self) -> int:
        """Return the size of the requests that wait to be decoded."""
        with self._locked() as connection:
            return waiting(connection)[0]

    def waiting(self) -> tuple[int, int]:
        """Return the bytes that wait, and the arrival of the oldest (ns since the epoch, 0 without any)."""
        with self._locked() as connection:
            return waiting(connection)

    def trace(self, trace_id: str) -> list[OperationSpan]:
        """Return the spans of a trace by start time, [] when it is unknown."""
        return self._select("WHERE trace_id = ? ORDER BY start, id", (trace_id,))

    def session(self, *, cases: int = 1) -> AbstractContextManager[Self]:
        """Return a context that gives this store: a file needs no cache and no bounds."""
        return nullcontext(self)

    def prefetch(self, trace_ids: Collection[str]) -> None:
        """Do nothing: a file is read as it is needed."""

    def failing(self, since: int, known: dict[str, None] | None = None) -> list[str]:
        """Return the ids of the traces with a failing evaluation since `since` (ns); see `TraceSource`."""
        return find_failing(self.indexed_since(since), self.trace, {} if known is None else known)

    def readers(self, origin: str, *, kinds: Collection[str] = ()) -> list[OperationSpan]:
        """Return the spans (of any of `kinds`) that read a version produced by `origin`, by start time."""
        self.decode()
        with self._locked() as connection:
            ids = json.dumps(readers_of(connection, origin))
            found = self._select("WHERE id IN (SELECT value FROM json_each(?)) ORDER BY start, id", (ids,))
        found = [span for span in found if not kinds or span.kind in kinds]
        return [span for span in found if any(variable.origin == origin for variable in span.inputs)]

    def has_span(self, trace_id: str, span_id: str) -> bool:
        """Tell whether a span is there."""
        self.decode()
        with self._locked() as connection:
            return has_span(connection, make_origin(trace_id, span_id))

    def outlines(self, trace_ids: Collection[str]) -> Iterator[Outline]:
        """Yield the decoded spans of several traces, trace by trace, without contents."""
        query = "SELECT trace_id, span_id, kind, scope, source, body FROM span WHERE trace_id "
        one = len(trace_ids) == 1
        query += "= ?" if one else "IN (SELECT value FROM json_each(?)) ORDER BY trace_id"
        values = tuple(trace_ids) if one else (json.dumps(list(trace_ids)),)
        with self._locked() as connection, snapshot(connection):
            rows = connection.execute(query, values).fetchall()
            found = [self._look(stored, trace_id, span_id) for trace_id, span_id, *_, stored in rows]
            sources = {source: self._source(source) for source in {row[4] for row in rows}}
        for (trace_id, span_id, kind, scope, source, _), looked in zip(rows, found, strict=True):
            try:
                outline = read_outline(trace_id, span_id, kind, scope, looked, sources[source])
            except UNDECODABLE as error:
                raise self._undecodable(trace_id, span_id) from error
            yield outline

    def writers(self, ref: str) -> list[str]:
        """Return the ids of the traces that list a variable among their outputs; see `TraceSource`."""
        with self._locked() as connection:
            return writers_of(connection, ref)

    def writers_before(self, ref: str, trace_id: str, most: int) -> list[str]:
        """Return the ids of up to `most` traces that wrote a variable and arrived just before this one."""
        with self._locked() as connection:
            return writers_before(connection, ref, trace_id, most)

    def changed_elsewhere(self, spans: Collection[OperationSpan]) -> set[str]:
        readers = {reader.trace_id for origin in near_failures(spans) for reader in self.readers(origin)}
        with self._locked() as connection:
            written = [(span.origin, span.scope) for span in spans if may_write(span)]
            changed = changed_elsewhere(connection, written, unique_refs(spans))
        return readers | changed

    def writer_scopes(self, ref: str) -> dict[str, set[str]]:
        """Return the ids of the traces that list a variable among their outputs, each with the writers' scopes."""
        with self._locked() as connection:
            return writer_scopes(connection, ref)

    def reader_scopes(self, trace_ids: Collection[str]) -> list[tuple[str, str, set[str]]]:
        """Return (one of these traces, a trace that read what a span of it produced, scopes of the reader)."""
        with self._locked() as connection:
            return reader_scopes(connection, trace_ids)

    def spans(
        self,
        *,
        scope: str | None = None,
        kinds: Collection[str] = (),
        since: int | None = None,
        until: int | None = None,
    ) -> Iterator[OperationSpan]:
        """Yield spans by start time, page by page, so that neither memory nor a long read snapshot grows."""
        conditions: list[str] = []
        values: list[str | int] = []
        if scope is not None:
            conditions.append("scope = ?")
            values.append(scope)
        if kinds:
            conditions.append(f"kind IN ({', '.join('?' * len(kinds))})")
            values.extend(map(str, kinds))
        if since is not None:
            conditions.append("start >= ?")
            values.append(since)
        if until is not None:
            conditions.append("start < ?")
            values.append(until)
        last = (-1, -1)
        where = " AND ".join([*conditions, "(start, id) > (?, ?)"])
        while page := self._page(f"WHERE {where} ORDER BY start, id LIMIT {_PAGE}", (*values, *last), _PAGE_BYTES):
            yield from (span for _, span in page)
            last = page[-1][0]

    def is_known(self, trace_id: str) -> bool:
        """Tell whether more of a trace than judgements has been decoded. What waits is left to wait."""
        with self._locked() as connection:
            (found,) = connection.execute(_IS_KNOWN, (trace_id, OpKind.JUDGE)).fetchone()
            return bool(found)

    def trace_ids(self, *, scope: str | None = None) -> list[str]:
        """Return the id of every trace, or of those with a span of a scope, by the start of the first such span."""
        self.decode()
        where, values = ("", ()) if scope is None else ("WHERE scope = ?", (scope,))
        with self._locked() as connection:
            query = f"SELECT trace_id FROM span {where} GROUP BY trace_id ORDER BY min(start), min(id)"
            return [trace_id for (trace_id,) in connection.execute(query, values)]

    def indexed(self) -> Iterator[NewSpan]:
        """Yield the indexed fields of every span, in order of arrival, page by page."""
        self.decode()
        for _, page in self._indexed_pages(0, _LAST_ROW):
            yield from page

    def _indexed_pages(self, after: int, last: int) -> Iterator[tuple[int, list[NewSpan]]]:
        """Yield the spans with row numbers behind `after`, up to `last`, page by page, each with its last number."""
        while after < last:
            rows, page = self._indexed(_BY_ROW, after, last)
            if not rows:
                return
            after = rows[-1][0]
            yield after, page

    def _indexed(self, by: tuple[str, str], *values: object) -> tuple[list[tuple[Any, ...]], list[NewSpan]]:
        """Return id and start of up to 256 rows, and the spans; what cannot be read is left out with a warning."""
        index, clause = by
        with self._locked() as connection, snapshot(connection):
            try:
                rows = connection.execute(f"{_INDEXED} {clause}", (*values, _PAGE)).fetchall()
                places = [row[:2] for row in rows]
            except DatabaseError as error:
                if not is_corrupt(error):
                    raise
                query = f"SELECT id, start FROM span INDEXED BY {index} {clause}"
                places = connection.execute(query, (*values, _PAGE)).fetchall()
                rows = [row for id, _ in places for row in self._readable(id)]
                if lost := len(places) - len(rows):
                    _logger.warning("%s: %d spans unreadable; see `memtrace-otel store check`", self._path, lost)
            return places, [span for row in rows if (span := self._new_span(*row[1:]))]

    def _readable(self, id: int) -> list[tuple[Any, ...]]:
        try:
            return self._connection.execute(f"{_INDEXED} WHERE id = ?", (id,)).fetchall()
        except DatabaseError as error:
            if not is_corrupt(error):
                raise
            return []

    def _new_span(
        self, start: int, trace_id: str, span_id: str, name: str, source: int, stored: bytes
    ) -> NewSpan | None:
        try:
            body = self._bodies.read(stored, trace_id, span_id)
            return read_indexed(trace_id, span_id, name, start, self._source(source), body)
        except (*UNDECODABLE, DatabaseError) as error:
            if isinstance(error, DatabaseError) and not is_corrupt(error):
                raise
            _logger.warning("%s", self._undecodable(trace_id, span_id))
            return None

    def indexed_since(self, since: int, kind: Literal[OpKind.RESPOND, OpKind.JUDGE] | None = None) -> Iterator[NewSpan]:
        """Yield the same of the spans (of one kind) that started at `since` (ns) or later, by start time."""
        by, values = (_BY_KIND, (kind,)) if kind else (_BY_START, ())
        self.decode()
        last = (since, -1)
        while True:
            rows, page = self._indexed(by, *values, *last)
            yield from page
            if len(rows) < _PAGE:
                return
            last = rows[-1][1], rows[-1][0]

    def stats(self) -> StoreStats:
        """Count what the store holds."""
        self.decode()
        with self._locked() as connection:
            return StoreStats(*connection.execute(_STATS).fetchone())

    def scopes(self) -> list[ScopeStats]:
        """Count by memory scope."""
        self.decode()
        with self._locked() as connection:
            return [ScopeStats(*row) for row in connection.execute(_SCOPES)]

    def size(self) -> StoreSize:
        """Return the space that the database takes."""
        with self._locked() as connection:
            return space.size(connection)

    def check(self) -> list[Damage]:
        """Read everything and return what is damaged, at most 1,000 findings."""
        with self._locked() as connection:
            return list(islice(find_damage(connection), _FINDINGS))

    def prune(self, *, before: int | None = None, max_bytes: int | None = None, scope: str | None = None) -> Pruned:
        """Remove traces by age (ns), size and scope, in short transactions; the space is free for new spans. Waits for
        an attribution that is under way: it would write what it has read."""
        if before is None and max_bytes is None and scope is None:
            raise ValueError("give an age, a size or a scope")
        if scope == "":
            raise ValueError("an empty scope is none")
        with self.turn():
            self.decode()
            return retention.prune(self._locked, retention.Retention(before, max_bytes, scope))

    def forget(self, scope: str, *, compact: bool = True) -> Forgotten:
        """Erase the contents of a scope, in short transactions, and compact. Waits as `prune` does. Raises ValueError
        without a scope."""
        if not scope:
            raise ValueError("give a scope")
        with self.turn():
            self.decode()
            return forgetting.forget(self._locked, scope, rewrite=compact)

    def compact(self) -> Compaction:
        """Pack spans and give free space back; writers wait for as long as the file takes to be written anew."""
        self.decode()
        return space.compact(self._locked)

    def quarantined(self) -> list[str]:
        """Return why each request, or part of one, in quarantine could not be read, oldest first."""
        with self._locked() as connection:
            return [reason for (reason,) in connection.execute("SELECT reason FROM quarantine ORDER BY id")]

    def turn(self, *, wait: bool = True) -> AbstractContextManager[bool]:
        """Return a context in which nobody else has the turn at this file: what is concluded, kept and sent there is so
        once. It may be entered within itself. Without `wait` it gives False when another process or thread is in it."""
        return self._turn.taken(wait=wait)

    def save_verdict(self, answer: str, attribution_id: str, document: str) -> bool:
        """Keep the verdict on the answering span `answer` (an origin), and return whether it is new: the same
        attribution id is kept once."""
        with self._locked() as connection:
            return ledger.save_verdict(connection, answer, attribution_id, document)

    def verdict(self, answer: str) -> StoredVerdict | None:
        """Return the newest verdict on an answer."""
        with self._locked() as connection:
            return ledger.verdict(connection, answer)

    def verdicts(self, trace_id: str = "") -> list[StoredVerdict]:
        """Return the newest verdict on every answer, or on those of a trace, oldest first."""
        with self._locked() as connection:
            return ledger.verdicts(connection, trace_id)

    def withdraw_verdicts(self, attribution_ids: Iterable[str]) -> None:
        """Forget these verdicts, whose answers no longer fail, and those that they replaced."""
        with self._locked() as connection:
            ledger.withdraw(connection, attribution_ids)

    def unsent(self, target: str, span_ids: Iterable[str]) -> list[str]:
        """Return those of `span_ids` that were never marked as sent to `target`, in their order."""
        with self._locked() as connection:
            return ledger.unsent(connection, target, span_ids)

    def has_sent(self, target: str) -> bool:
        """Tell whether anything was ever marked as sent to `target`."""
        with self._locked() as connection:
            return ledger.has_sent(connection, target)

    def mark_sent(self, target: str, span_ids: Iterable[str]) -> None:
        """Remember that `span_ids` were sent to `target`."""
        with self._locked() as connection:
            ledger.mark_sent(connection, target, span_ids)

    @contextmanager
    def _locked(self) -> Generator[Connection]:
        with self._lock, TranslatedErrors(self._path):
            yield self._connection

    def _select(self, clause: str, values: tuple[str | int, ...]) -> list[OperationSpan]:
        return [span for _, span in self._page(clause, values)]

    def _page(
        self, clause: str, values: tuple[str | int, ...], most: float = math.inf
    ) -> list[tuple[tuple[int, int], OperationSpan]]:
        """Return ((start, row id), span) of the rows found, until `most` bytes of spans are reached; what waits in the
        inbox is read first."""
        self.decode()
        page: list[tuple[tuple[int, int], OperationSpan]] = []
        with self._locked() as connection, snapshot(connection):
            query = f"SELECT start, id, trace_id, span_id, source, body FROM span {clause}"
            with closing(connection.execute(query, values)) as rows:
                for start, id, trace_id, span_id, source, stored in rows:
                    try:
                        body = self._bodies.read(stored, trace_id, span_id)
                        page.append(((start, id), read_row(body, self._source(source))))
                    except UNDECODABLE as error:
                        raise self._undecodable(trace_id, span_id) from error
                    most -= len(body)
                    if most <= 0:
                        break
        return page

    def _look(self, stored: bytes, trace_id: str, span_id: str) -> tuple[Head | None, Callable[[], bytes]]:
        try:
            return self._bodies.look(stored, trace_id, span_id)
        except UNDECODABLE as error:
            raise self._undecodable(trace_id, span_id) from error

    def _undecodable(self, trace_id: str, span_id: str) -> StoreError:
        span = make_origin(trace_id, span_id)
        reason = f"span {span} cannot be decoded; `memtrace-otel store check` names every such span"
        return DamagedError(self._path, reason)

    def _source(self, id: int) -> Source:
        if id not in self._sources:
            if len(self._sources) >= _SOURCES:
                self._sources.clear()
            row = self._connection.execute("SELECT body FROM source WHERE id = ?", (id,)).fetchone()
            self._sources[id] = read_source(row[0])
        return self._sources[id]


def _file_at(path: Path) -> tuple[int, int] | None:
    """What tells one file from another; None where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


_NOT_IN_PLACE = "the file was moved, removed or replaced while it is open: nothing more is kept; start again"
_IS_KNOWN = "SELECT EXISTS (SELECT 1 FROM span WHERE trace_id = ? AND kind <> ?)"
_STATS = f"""
SELECT
    (SELECT count(*) FROM span),
    (SELECT count(DISTINCT trace_id) FROM span),
    (SELECT count(*) FROM span) - (SELECT count(*) FROM span WHERE {INDEXED_KINDS} AND kind = ''),
    (SELECT count(DISTINCT scope) FROM span WHERE scope <> ''),
    (SELECT count(*) FROM inbox),
    (SELECT count(*) FROM quarantine),
    (SELECT coalesce(min(start), 0) FROM span),
    (SELECT coalesce(max(start), 0) FROM span)
"""

_LAST_ROW = (1 << 63) - 1
_INDEXED = "SELECT id, start, trace_id, span_id, name, source, body FROM span"
_BY_ROW = "span_start", "WHERE id > ? AND id <= ? ORDER BY id LIMIT ?"
_BY_START = "span_start", "WHERE (start, id) > (?, ?) ORDER BY start, id LIMIT ?"
_BY_KIND = "span_kind", f"WHERE {INDEXED_KINDS} AND kind = ? AND (start, id) > (?, ?) ORDER BY start, id LIMIT ?"
"""Which rows to look up, and an index that still names them where their page cannot be read."""

_SCOPES = f"""
SELECT scope, count(*), count(DISTINCT trace_id), sum(length(body)) + coalesce(shared, 0), min(start), max(start)
FROM span LEFT JOIN (
    SELECT scope, sum(length(text)) AS shared
    FROM (SELECT DISTINCT scope, stream FROM stream_use CROSS JOIN span ON id = span)
    CROSS JOIN piece ON id >= stream << {NUMBER_BITS} AND id < (stream + 1) << {NUMBER_BITS}
    GROUP BY scope
) USING (scope)
WHERE scope <> '' GROUP BY scope ORDER BY scope
"""
