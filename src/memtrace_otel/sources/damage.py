"""`check`: what in the file is not as it was written."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator
from sqlite3 import Connection
from typing import Any

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from memtrace_otel.otlp.decode import DecodeError, indexed_fields
from memtrace_otel.sources.bodies import UNDECODABLE, Bodies
from memtrace_otel.sources.connection import file_of, snapshot
from memtrace_otel.sources.erasing import unfinished
from memtrace_otel.sources.lineage import key_of
from memtrace_otel.sources.log import copy_of
from memtrace_otel.sources.packing import take_apart
from memtrace_otel.sources.rows import read_source
from memtrace_otel.sources.streams import NUMBER_BITS
from memtrace_otel.sources.upkeep import Damage

_PAGE = 256
_SPANS = f"SELECT id, trace_id, span_id, kind, scope, body FROM span WHERE id > ? ORDER BY id LIMIT {_PAGE}"

_STREAMS = """
SELECT id, stream.size, coalesce(max(stream_use.size), 0) AS used
FROM stream LEFT JOIN stream_use ON stream = id GROUP BY id HAVING stream.size <> used
"""
_USES = "SELECT span, stream FROM stream_use WHERE span NOT IN (SELECT id FROM span)"
_PIECES = f"SELECT DISTINCT id >> {NUMBER_BITS} AS of FROM piece WHERE of NOT IN (SELECT id FROM stream)"

_TREES = """
SELECT 'table ' || name, name, coalesce(
    (SELECT 'INDEXED BY ' || own.name FROM pragma_index_list(sqlite_master.name) AS own
     WHERE own.name NOT IN (SELECT name FROM sqlite_master)), 'NOT INDEXED')
FROM sqlite_master WHERE type = 'table'
UNION ALL SELECT 'index ' || name, tbl_name, 'INDEXED BY ' || name || CASE
    WHEN instr(sql, ' WHERE ') THEN substr(sql, instr(sql, ' WHERE ')) ELSE '' END
FROM sqlite_master WHERE type = 'index'
"""
"""Every tree of pages: its name, the table, how to read that one. A table without row ids is an index of its own."""


def find_damage(connection: Connection) -> Iterator[Damage]:
    """Yield every damage; where the file is too broken to be read on, the rest is looked through all the same."""
    for part in (_integrity, _log, _sources, _dangling, _streams, _spans, _verdicts, _unfinished):
        try:
            yield from part(connection)
        except sqlite3.DatabaseError as error:
            yield Damage("integrity", "file", str(error))


def _integrity(connection: Connection) -> Iterator[Damage]:
    try:
        findings = [finding for (finding,) in connection.execute("PRAGMA integrity_check").fetchall()]
    except sqlite3.DatabaseError as error:
        findings = [str(error)]
    if findings != ["ok"]:
        yield from (Damage("integrity", "file", finding) for finding in findings)
        yield from _broken(connection)


def _broken(connection: Connection) -> Iterator[Damage]:
    """Tables and indexes that cannot be read to their end; SQLite itself says no more than that there are some."""
    for place, table, by in connection.execute(_TREES).fetchall():
        try:
            connection.execute(f"SELECT total(1) FROM {table} {by}").fetchone()
        except sqlite3.DatabaseError as error:
            yield Damage("integrity", place, str(error))


def _log(connection: Connection) -> Iterator[Damage]:
    if (copy := copy_of(file_of(connection))).exists():
        yield Damage("integrity", "log", f"it was damaged: commits behind the damage are lost, unless in {copy}")


def _sources(connection: Connection) -> Iterator[Damage]:
    for id, body in connection.execute("SELECT id, body FROM source").fetchall():
        try:
            read_source(body)
        except (DecodeError, IndexError, TypeError) as error:
            yield Damage("undecodable", f"source {id}", str(error))


def _dangling(connection: Connection) -> Iterator[Damage]:
    """Rows that name a row which is not there."""
    readers = "SELECT origin, span FROM reader WHERE span NOT IN (SELECT id FROM span)"
    for origin, id in connection.execute(readers).fetchall():
        yield Damage("dangling", f"reader of origin number {origin}", f"no span has row {id}")
    writers = "SELECT ref, span FROM writer WHERE span NOT IN (SELECT id FROM span)"
    for ref, id in connection.execute(writers).fetchall():
        yield Damage("dangling", f"writer of ref number {ref}", f"no span has row {id}")
    spans = "SELECT trace_id, span_id, source FROM span WHERE source NOT IN (SELECT id FROM source)"
    for trace_id, span_id, source in connection.execute(spans).fetchall():
        yield Damage("dangling", f"span {trace_id}-{span_id}", f"no source has row {source}")


def _streams(connection: Connection) -> Iterator[Damage]:
    """A stream that no longer is as long as the longest span that needs it; spans that cannot be read name theirs."""
    for stream, size, used in connection.execute(_STREAMS).fetchall():
        yield Damage("dangling", f"stream {stream}", f"it has {size} bytes, spans need {used}")
    for span, stream in connection.execute(_USES).fetchall():
        yield Damage("dangling", f"stream {stream}", f"no span has row {span}")
    for (stream,) in connection.execute(_PIECES).fetchall():
        yield Damage("dangling", f"stream {stream}", "it is gone, pieces of it are there")


def _spans(connection: Connection) -> Iterator[Damage]:
    last = 0
    bodies = Bodies(connection)
    try:
        while True:
            with snapshot(connection):
                rows = connection.execute(_SPANS, (last,)).fetchall()
                found = list(_of_rows(connection, bodies, rows))
            yield from found
            if not rows:
                return
            last = rows[-1][0]
    except sqlite3.DatabaseError:
        yield from _unreadable(connection, last)


def _unreadable(connection: Connection, read: int) -> Iterator[Damage]:
    """Spans whose row lies in a damaged page, or, behind the rows that were `read`, that cannot be decoded: the index
    of ids, elsewhere in the file, still names them."""
    bodies = Bodies(connection)
    ids = connection.execute("SELECT trace_id, span_id, id FROM span ORDER BY trace_id, span_id").fetchall()
    for trace_id, span_id, id in ids:
        try:
            found = connection.execute("SELECT body FROM span WHERE id = ?", (id,)).fetchone()
        except sqlite3.DatabaseError as error:
            yield Damage("integrity", f"span {trace_id}-{span_id}", str(error))
        else:
            if found is None:
                yield Damage("integrity", f"span {trace_id}-{span_id}", "its row is gone")
            elif id > read:
                try:
                    Span.FromString(bodies.read(found[0], trace_id, span_id))
                except UNDECODABLE as error:
                    yield Damage("undecodable", f"span {trace_id}-{span_id}", str(error))


def _of_rows(connection: Connection, bodies: Bodies, rows: list[tuple[Any, ...]]) -> Iterator[Damage]:
    for id, *columns, body in rows:
        place = f"span {columns[0]}-{columns[1]}"
        try:
            whole = bodies.read(body, *columns[:2])
            span = Span.FromString(whole)
        except UNDECODABLE as error:
            yield Damage("undecodable", place, str(error))
            continue
        query = "SELECT 1 FROM stream_use WHERE span = ? AND stream = ? AND size >= ?"
        for _, size, stream in packed.cuts if (packed := take_apart(body)) else ():
            if connection.execute(query, (id, stream, size)).fetchone() is None:
                yield Damage("mismatch", place, f"it needs stream {stream} but is not found as its user")
        fields = indexed_fields(whole)
        if [span.trace_id.hex(), span.span_id.hex(), str(fields.kind), fields.scope] != columns:
            yield Damage("mismatch", place, "its ids, kind or scope are not those of its row")
        query = "SELECT 1 FROM reader WHERE origin = ? AND span = ?"
        for origin in fields.origins:
            if connection.execute(query, (key_of(origin, id), id)).fetchone() is None:
                yield Damage("mismatch", place, f"it reads from {origin} but is not found as its reader")
        query = "SELECT 1 FROM writer WHERE ref = ? AND span = ?"
        for ref in fields.written:
            if connection.execute(query, (key_of(ref, id), id)).fetchone() is None:
                yield Damage("mismatch", place, f"it writes {ref} but is not found as its writer")


def _verdicts(connection: Connection) -> Iterator[Damage]:
    for id, document in connection.execute("SELECT attribution_id, document FROM verdict").fetchall():
        try:
            verdict: object = json.loads(document)
        except ValueError as error:
            yield Damage("undecodable", f"verdict {id}", str(error))
        else:
            if not isinstance(verdict, dict):
                yield Damage("undecodable", f"verdict {id}", "no JSON object")


def _unfinished(connection: Connection) -> Iterator[Damage]:
    for scope in unfinished(connection):
        yield Damage("unfinished", f"forget {scope}", "it was interrupted: some contents are left, do it again")
