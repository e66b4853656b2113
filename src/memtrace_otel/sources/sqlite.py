"""The embedded store: one SQLite file that several processes read and write at once."""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Collection, Generator, Iterable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager
from copy import copy
from pathlib import Path
from sqlite3 import Connection
from types import TracebackType
from typing import Any, Self

from memtrace_otel import settings
from memtrace_otel.model import OperationSpan, StoredVerdict, has_failing_evaluation, is_trace_id, judged_traces
from memtrace_otel.semconv import OpKind
from memtrace_otel.sources import ingest, lineage, maintenance
from memtrace_otel.sources.compression import BodyError, decompress
from memtrace_otel.sources.database import FileLock, TranslatedErrors, connect, snapshot, transaction, unsynced
from memtrace_otel.sources.errors import DamagedError, SourceError
from memtrace_otel.sources.maintenance import Compaction, Damage, Forgotten, Pruned, ScopeStats, StoreSize, StoreStats
from memtrace_otel.sources.query import may_write, near_failures, unique_refs
from memtrace_otel.sources.schema import VERDICT_MEMBERS

_PAGE_SPANS, _PAGE_BYTES = 256, 4 << 20
_TRACE_BYTES = 256 << 20
"""Most bytes of spans, decompressed, that one answer may hold."""
_RESOURCES = 4096
_SENTENCES = 100
"""Most sentences in `incomplete`."""
_COLUMNS = "start, id, trace, span, resource, body"


class SqliteStore:
    """Spans, verdicts and what was sent where, in one SQLite file: a `TraceSource` and a `VerdictLog`.

    A request that `add_request` acknowledged survives kill -9. Readers never block the writer. Every read first decodes
    the requests that wait in the inbox. Threads may share a store; a fork may not. Methods raise SourceError when the
    file cannot be read or written, and DamagedError for a damaged page. A span that cannot be decoded is left out and
    named in `incomplete`.
    """

    def __init__(self, connection: Connection, path: Path) -> None:
        self._connection = connection
        self._path = path
        self._absolute = path.absolute()
        self._file = _identity(self._absolute)
        self._thread_lock = threading.RLock()
        self._file_lock = FileLock(path)
        self._resources: dict[int, ingest.Resource] = {}
        self.incomplete: list[str] = []

    @classmethod
    def open(cls, path: str | Path, create: bool = True) -> Self:
        """Open the database file; with `create` make a missing one, readable by its owner alone.

        Raises SourceError when the file cannot be opened, is no database of ours or has another schema version.
        """
        path = Path(path)
        return cls(connect(path, create=create), path)

    def close(self) -> None:
        """Close the file. The store cannot be used afterwards."""
        with self._locked() as connection:
            connection.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # --- ingest --------------------------------------------------------------------------------------------------
    def add_request(self, body: bytes) -> None:
        """Commit an OTLP trace request to the inbox; the request is on disk when this returns."""
        self.add_requests((body,))

    def add_requests(self, bodies: Iterable[bytes]) -> None:
        """Commit several requests, all or none. Raises SourceError also where the file was moved or removed."""
        self._check_place()
        with self._locked() as connection:
            ingest.add_requests(connection, bodies)
        self._check_place()

    def decode(self) -> int:
        """Decode the requests of the inbox; return how many spans are new to the database."""
        new = 0
        while (batch := self.decode_batch()) is not None:
            new += len(batch.spans)
        return new

    def decode_batch(self) -> ingest.Batch | None:
        """Decode the oldest requests of the inbox in one transaction; None when the inbox is empty.

        The commit does not wait for the disk: a request whose rows a power failure loses is in the inbox again.
        """
        with self._locked() as connection, unsynced(connection):
            return ingest.decode_batch(connection)

    def waiting(self) -> tuple[int, int]:
        """Return the bytes in the inbox, and when the oldest request came (ns since the epoch, 0 without any)."""
        with self._locked() as connection:
            return connection.execute(
                "SELECT coalesce(sum(length(body)), 0), coalesce(min(received), 0) FROM inbox"
            ).fetchone()

    def quarantined(self) -> list[str]:
        """Return why each quarantined request, or part of one, could not be decoded, oldest first."""
        with self._locked() as connection:
            return [reason for (reason,) in connection.execute("SELECT reason FROM quarantine ORDER BY id")]

    def is_in_place(self) -> bool:
        """Tell whether the path still leads to the open file."""
        return _identity(self._absolute) == self._file

    def _check_place(self) -> None:
        if not self.is_in_place():
            raise SourceError(
                self._path, "the file was moved, removed or replaced while it is open: start the program again"
            )

    # --- spans: TraceSource --------------------------------------------------------------------------------------
    @contextmanager
    def session(self, *, cases: int = 1) -> Generator[Self]:
        """Give a reader of this file with an `incomplete` of its own: a file needs no cache and no bounds."""
        reader = copy(self)
        reader.incomplete = []
        yield reader

    def prefetch(self, trace_ids: Collection[str]) -> None:
        """Do nothing: a file is read as it is needed."""

    def trace(self, trace_id: str) -> list[OperationSpan]:
        """Return the spans of a trace by start time, [] when the trace is unknown."""
        if not is_trace_id(trace_id):
            return []
        return self._select("WHERE trace = ? ORDER BY start, id", (bytes.fromhex(trace_id),))

    def spans(
        self,
        *,
        scope: str | None = None,
        kinds: Collection[str] = (),
        since: int | None = None,
        until: int | None = None,
    ) -> Iterator[OperationSpan]:
        """Yield spans by start time, page by page, so that neither memory nor a read snapshot grows."""
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
        return self._pages(conditions, values)

    def readers(self, origin: str, *, kinds: Collection[str] = ()) -> list[OperationSpan]:
        """Return the spans (of any of `kinds`) that read a version produced by `origin`, by start time."""
        query = "WHERE id IN (SELECT span FROM variable WHERE origin = ? AND origin <> '') ORDER BY start, id"
        found = self._select(query, (ingest.pack_origin(origin),))
        return [span for span in found if not kinds or span.kind in kinds]

    def writers(self, ref: str) -> list[str]:
        """Return the ids of the traces that list a variable among their outputs."""
        with self._decoded() as connection:
            return lineage.writers(connection, ref)

    def changed_elsewhere(self, spans: Collection[OperationSpan]) -> set[str]:
        """Return the ids of the traces that tell what others did to a record of these spans; see `TraceSource`."""
        readers = {reader.trace_id for origin in near_failures(spans) for reader in self.readers(origin)}
        written = [(span.origin, span.scope) for span in spans if may_write(span)]
        with self._decoded() as connection:
            return readers | lineage.changed_elsewhere(connection, written, unique_refs(spans))

    def trace_ids(self, *, scope: str | None = None) -> list[str]:
        """Return the id of every trace, or of those with a span of a scope, by the start of the first such span."""
        where, values = ("", ()) if scope is None else ("WHERE scope = ?", (scope,))
        with self._decoded() as connection:
            query = f"SELECT trace FROM span {where} GROUP BY trace ORDER BY min(start), min(id)"
            return [trace.hex() for (trace,) in connection.execute(query, values)]

    def failing(self, since: int, known: dict[str, None] | None = None) -> list[str]:
        """Return the ids of the traces with a failing evaluation since `since` (ns); see `TraceSource`."""
        known = {} if known is None else known
        threshold = settings.EVALUATION_THRESHOLD.read()
        found: dict[str, None] = {}
        for span in self.evaluations(since):
            if span.origin not in known and has_failing_evaluation(span, threshold):
                found |= dict.fromkeys(sorted(judged_traces(span)))
            known[span.origin] = None
        return list(found)

    def evaluations(self, since: int = 0) -> Iterator[OperationSpan]:
        """Yield the spans with an evaluation that started at `since` (ns) or later, by start time."""
        return self._pages(["evaluates = 1", "start >= ?"], [since])

    # --- lineage -------------------------------------------------------------------------------------------------
    def lineage(self, origins: Iterable[str], *, most: int = 500_000) -> list[str]:
        """Return the origins of the operations that some operations came from, these first; at most `most`.

        Origins are `<trace id>-<span id>`. One recursive query follows the recorded origins. Where an origin is
        unknown, the query takes the last writers of the ref before the read. So the answer may hold a few operations
        too many: a graph of their traces (`origin[:32]`) has the exact slice.
        """
        with self._decoded() as connection, snapshot(connection):
            return lineage.lineage(connection, origins, most)

    def is_known(self, trace_id: str) -> bool:
        """Tell whether more of a trace than judgements has been decoded; the inbox is left as it is."""
        with self._locked() as connection:
            query = "SELECT 1 FROM span WHERE trace = ? AND kind <> ? LIMIT 1"
            return connection.execute(query, (bytes.fromhex(trace_id), OpKind.JUDGE)).fetchone() is not None

    # --- verdicts: VerdictLog ------------------------------------------------------------------------------------
    # The newest verdict is the one saved last, whatever the clock says.
    def save_verdict(self, answer: str, attribution_id: str, document: str) -> bool:
        """Save a verdict on the answering span `answer` (an origin), unless its attribution id is known; return whether
        it was saved."""
        with self._locked() as connection:
            places = ", ".join("?" * (4 + len(VERDICT_MEMBERS)))
            query = f"INSERT OR IGNORE INTO verdict ({_VERDICT}, {', '.join(VERDICT_MEMBERS)}) VALUES ({places})"
            values = (answer, attribution_id, document, time.time_ns(), *_members(document))
            return connection.execute(query, values).rowcount > 0

    def verdict(self, answer: str) -> StoredVerdict | None:
        """Return the newest verdict on an answer."""
        with self._locked() as connection:
            query = f"SELECT {_VERDICT} FROM verdict WHERE answer = ? ORDER BY rowid DESC LIMIT 1"
            row = connection.execute(query, (answer,)).fetchone()
        return StoredVerdict(*row) if row else None

    def verdicts(self, trace_id: str = "") -> list[StoredVerdict]:
        """Return the newest verdict on every answer, or on those of a trace, oldest first."""
        where = "WHERE answer BETWEEN :trace || '-' AND :trace || '-g'" if trace_id else ""
        query = f"SELECT {_VERDICT} FROM verdict {where} ORDER BY rowid"
        newest: dict[str, StoredVerdict] = {}
        with self._locked() as connection:
            for row in connection.execute(query, {"trace": trace_id}):
                newest.pop(row[0], None)
                newest[row[0]] = StoredVerdict(*row)
        return list(newest.values())

    def withdraw_verdicts(self, attribution_ids: Iterable[str]) -> None:
        """Delete these verdicts and the verdicts that they replaced."""
        query = (
            "DELETE FROM verdict WHERE (answer, rowid) IN (SELECT old.answer, old.rowid FROM verdict AS old"
            " JOIN verdict AS given USING (answer) WHERE given.attribution_id = ? AND old.rowid <= given.rowid)"
        )
        with self._locked() as connection, transaction(connection):
            connection.executemany(query, [(id,) for id in attribution_ids])

    def unsent(self, target: str, span_ids: Iterable[str]) -> list[str]:
        """Return the ids that were never marked as sent to `target`, each once, in their order."""
        query = "SELECT 1 FROM sent WHERE target = ? AND span_id = ?"
        with self._locked() as connection:
            return [id for id in dict.fromkeys(span_ids) if not connection.execute(query, (target, id)).fetchone()]

    def has_sent(self, target: str) -> bool:
        """Tell whether any id was ever marked as sent to `target`."""
        with self._locked() as connection:
            return connection.execute("SELECT 1 FROM sent WHERE target = ? LIMIT 1", (target,)).fetchone() is not None

    def mark_sent(self, target: str, span_ids: Iterable[str]) -> None:
        """Mark the ids as sent to `target`."""
        now = time.time_ns()
        query = "INSERT OR IGNORE INTO sent (target, span_id, sent_at) VALUES (?, ?, ?)"
        with self._locked() as connection, transaction(connection):
            connection.executemany(query, [(target, id, now) for id in span_ids])

    def turn(self, *, wait: bool = True) -> AbstractContextManager[bool]:
        """Hold the file lock under which verdicts are made, saved and sent; see `FileLock.held`."""
        return self._file_lock.held(wait=wait)

    # --- maintenance ---------------------------------------------------------------------------------------------
    def stats(self) -> StoreStats:
        """Count what the database holds."""
        with self._decoded() as connection:
            return maintenance.stats(connection)

    def scopes(self) -> list[ScopeStats]:
        """Count by memory scope."""
        with self._decoded() as connection:
            return maintenance.scopes(connection)

    def size(self) -> StoreSize:
        """Return the space that the database takes."""
        with self._locked() as connection:
            return maintenance.size(connection)

    def check(self) -> list[Damage]:
        """Read the whole file and return what is damaged, [] when nothing is; changes nothing."""
        with self._locked() as connection:
            return maintenance.check(connection)

    def prune(self, *, before: int | None = None, max_bytes: int | None = None, scope: str | None = None) -> Pruned:
        """Delete whole traces, the trace with the oldest last span first; see `maintenance.prune`.

        Waits for an attribution that runs. Raises ValueError when nothing is given.
        """
        if (before is None and max_bytes is None and scope is None) or scope == "":
            raise ValueError("give an age, a size or a scope")
        with self.turn():
            self.decode()
            return maintenance.prune(self._locked, before=before, max_bytes=max_bytes, scope=scope)

    def forget(self, scope: str) -> Forgotten:
        """Delete a memory and write the file anew, so that its text is gone; see `maintenance.forget`.

        Waits for an attribution that runs. Raises ValueError without a scope.
        """
        if not scope:
            raise ValueError("give a scope")
        with self.turn():
            self.decode()
            return maintenance.forget(self._locked, self._absolute, scope)

    def compact(self) -> Compaction:
        """Write the file anew without its free pages; writers wait meanwhile, readers do not."""
        self.decode()
        with self._locked() as connection:
            return maintenance.compact(connection, self._absolute)

    # --- inside --------------------------------------------------------------------------------------------------
    @contextmanager
    def _locked(self) -> Generator[Connection]:
        with self._thread_lock, TranslatedErrors(self._path):
            yield self._connection

    @contextmanager
    def _decoded(self) -> Generator[Connection]:
        self.decode()
        with self._locked() as connection:
            yield connection

    def _select(self, clause: str, values: tuple[Any, ...]) -> list[OperationSpan]:
        """Return the spans of a query, as far as one answer may be large."""
        with self._decoded() as connection, snapshot(connection):
            rows, left = self._read(connection, clause, values, _TRACE_BYTES)
        if left <= 0:
            self._note(f"{self._path}: only the first {_TRACE_BYTES >> 20} MiB of spans of one trace were read")
        return [span for _, span in rows if span]

    def _pages(self, conditions: list[str], values: list[Any]) -> Iterator[OperationSpan]:
        last = (-1, -1)
        where = " AND ".join([*conditions, "(start, id) > (?, ?)"])
        clause = f"WHERE {where} ORDER BY start, id LIMIT {_PAGE_SPANS}"
        while True:
            with self._decoded() as connection, snapshot(connection):
                page, _ = self._read(connection, clause, (*values, *last), _PAGE_BYTES)
            if not page:
                return
            yield from (span for _, span in page if span)
            if page[-1][0] <= last:
                raise DamagedError(self._path, "an index of the file is damaged: its rows are not in order")
            last = page[-1][0]

    def _read(
        self, connection: Connection, clause: str, values: tuple[Any, ...], most: int
    ) -> tuple[list[tuple[tuple[int, int], OperationSpan | None]], int]:
        """Return ((start, row), span) of the rows found, until they have `most` bytes, and the bytes left of these.

        A span that cannot be decoded is None, and noted.
        """
        rows: list[tuple[tuple[int, int], OperationSpan | None]] = []
        with closing(connection.execute(f"SELECT {_COLUMNS} FROM span {clause}", values)) as cursor:
            for start, id, trace, span, resource, stored in cursor:
                try:
                    body = decompress(stored)
                    most -= len(body)
                    rows.append(((start, id), ingest.decode_body(body, self._resource(connection, resource))))
                except ingest.UNDECODABLE as error:
                    self._note(f"{self._path}: span {trace.hex()}-{span.hex()} cannot be decoded: {error}")
                    rows.append(((start, id), None))
                if most <= 0:
                    break
        return rows, most

    def _note(self, sentence: str) -> None:
        if sentence not in self.incomplete and len(self.incomplete) < _SENTENCES:
            self.incomplete.append(sentence)

    def _resource(self, connection: Connection, id: int) -> ingest.Resource:
        found = self._resources.get(id)
        if found is None:
            row = connection.execute("SELECT body FROM resource WHERE id = ?", (id,)).fetchone()
            if row is None:
                raise BodyError(f"resource {id} is missing")
            if len(self._resources) >= _RESOURCES:
                self._resources.clear()
            found = self._resources[id] = ingest.read_resource(row[0])
        return found


def _identity(path: Path) -> tuple[int, int] | None:
    """Return device and inode of a file; None where there is none."""
    try:
        found = os.stat(path)
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _members(document: str) -> list[Any]:
    """Return the members of a verdict's document that are columns; None for those it lacks."""
    try:
        members = json.loads(document)
        operation = members.get("operation", {}).get("span_id")
    except (ValueError, AttributeError):
        return [None] * len(VERDICT_MEMBERS)
    return [operation if name == "operation" else members.get(name) for name in VERDICT_MEMBERS]


_VERDICT = "answer, attribution_id, document, created"
