"""What can be read of a database, damaged perhaps, as requests for another one."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress
from itertools import groupby, islice
from pathlib import Path
from sqlite3 import Connection, DatabaseError

from google.protobuf.message import DecodeError
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from memtrace_otel.sources.bodies import UNDECODABLE, Bodies
from memtrace_otel.sources.connection import TranslatedErrors, connect, snapshot
from memtrace_otel.sources.sqlite import SqliteStore

_MAGIC = b"SQLite format 3\x00"
_REQUEST_SPANS = 256
_WAYS = ("NOT INDEXED", "INDEXED BY span_start", "INDEXED BY span_scope")
_ROW = "SELECT trace_id, span_id, span.body, source.body FROM span JOIN source ON source.id = source WHERE span.id = ?"


def is_database(path: Path) -> bool:
    """Tell whether a file is one of SQLite. Of a pipe nothing is read: that could not be read again."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        return file.read(len(_MAGIC)) == _MAGIC


def read_requests(path: Path) -> Iterator[bytes | None]:
    """Yield the spans of a database by order of arrival, and the requests that wait in it; None for each span that
    cannot be read. Raises StoreError when the file cannot be opened at all."""
    SqliteStore.open(path, create=False).close()  # an older one becomes one of this version
    # One snapshot: what waits may become spans meanwhile.
    with closing(connect(path, create=False)) as connection, TranslatedErrors(path), snapshot(connection):
        bodies = Bodies(connection)
        found = (_read(connection, bodies, id) for id in _rows(connection))
        for source, group in groupby(found, key=lambda row: row[1] if row else b""):
            while rows := list(islice(group, _REQUEST_SPANS)):
                try:
                    request = ExportTraceServiceRequest.FromString(source)
                    request.resource_spans[0].scope_spans[0].spans.extend(row[0] for row in rows if row)
                    yield request.SerializeToString()
                except (DecodeError, IndexError):
                    yield from (None for _ in rows)
        with suppress(DatabaseError):
            yield from (body for (body,) in connection.execute("SELECT body FROM inbox ORDER BY id"))


def _rows(connection: Connection) -> list[int]:
    """Return the rows of spans: an index names also those in a page of the table that is damaged."""
    found: set[int] = set()
    for way in _WAYS:
        with suppress(DatabaseError):
            for (id,) in connection.execute(f"SELECT id FROM span {way}"):
                found.add(id)
            break
    return sorted(found)


def _read(connection: Connection, bodies: Bodies, id: int) -> tuple[Span, bytes] | None:
    try:
        trace_id, span_id, stored, source = connection.execute(_ROW, (id,)).fetchone()
        return Span.FromString(bodies.read(stored, trace_id, span_id)), source
    except (*UNDECODABLE, DatabaseError):
        return None
