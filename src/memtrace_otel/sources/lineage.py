"""The indexes of lineage: which spans read what a span produced, which spans list a variable among their outputs.

A name is indexed by its hash, behind the number of the part of the file that the span is in: names are random, and with
the hash alone every new span would write pages all over indexes that grow with the file. So it writes the pages of the
newest part, and who asks looks into each part. Two names may share a hash: what is found is compared by name.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from hashlib import blake2b
from sqlite3 import Connection

from google.protobuf.message import DecodeError

from memtrace_otel.otlp.decode import IndexedFields, indexed_fields
from memtrace_otel.semconv import CHANGING_KINDS

PART_BITS, HASH_BITS = 15, 40
_HASH_MASK = (1 << HASH_BITS) - 1
"""A part has 2 ** 15 rows: of a million spans 31 are looked into, three microseconds each."""


def key_of(name: str, id: int) -> int:
    """Return the number by which a ref or an origin is indexed for the span of row `id`."""
    return id >> PART_BITS << HASH_BITS | _hash_of(name)


def add_to_indexes(connection: Connection, spans: Iterable[tuple[int, IndexedFields]]) -> None:
    """Make the spans of rows be found by what they read and wrote."""
    readers: list[tuple[int, int]] = []
    writers: list[tuple[int, int]] = []
    for id, fields in spans:
        readers += [(key_of(origin, id), id) for origin in fields.origins]
        writers += [(key_of(ref, id), id) for ref in fields.written]
    connection.executemany("INSERT OR IGNORE INTO reader (origin, span) VALUES (?, ?)", readers)
    connection.executemany("INSERT OR IGNORE INTO writer (ref, span) VALUES (?, ?)", writers)


def remove_from_indexes(connection: Connection, id: int, body: bytes, kept: IndexedFields | None = None) -> None:
    """Undo `add_to_indexes` for a span, but for what is `kept`; one that cannot be decoded is found only by looking
    through all."""
    try:
        fields = indexed_fields(body)
    except DecodeError:
        connection.execute("DELETE FROM reader WHERE span = ?", (id,))
        connection.execute("DELETE FROM writer WHERE span = ?", (id,))
        return
    gone = (fields.origins, fields.written)
    if kept:
        gone = (fields.origins - kept.origins, fields.written - kept.written)
    origins, refs = [[(key_of(name, id), id) for name in names] for names in gone]
    connection.executemany("DELETE FROM reader WHERE origin = ? AND span = ?", origins)
    connection.executemany("DELETE FROM writer WHERE ref = ? AND span = ?", refs)


def readers_of(connection: Connection, origin: str) -> list[int]:
    """Return the rows of the spans that read what `origin` produced; seldom one more."""
    return [id for (id,) in connection.execute(_READERS, {"hash": _hash_of(origin)})]


def writers_of(connection: Connection, ref: str) -> list[str]:
    """Return the traces of the spans that list `ref` among their outputs; seldom one more."""
    return [trace_id for (trace_id,) in connection.execute(_WRITERS, {"hash": _hash_of(ref)})]


def writers_before(connection: Connection, ref: str, trace_id: str, most: int) -> list[str]:
    """Return the traces of up to `most` of them that arrived before the last span of a trace, the last first."""
    found: list[str] = []
    last, first = connection.execute(_BOUNDS, (trace_id,)).fetchone()
    for part in range((last or 0) >> PART_BITS, (first or 0) - 1, -1):
        key = part << HASH_BITS | _hash_of(ref)
        found += [writer for (writer,) in connection.execute(_WRITERS_BEFORE, (key, last, most - len(found)))]
        if len(found) >= most:
            break
    return found


def writer_scopes(connection: Connection, ref: str) -> dict[str, set[str]]:
    """Return the traces of the spans that list `ref` among their outputs, each with the scopes these may be of."""
    rows = connection.execute(_WRITER_SCOPES, {"hash": _hash_of(ref)}).fetchall()
    possible = _possible(connection, rows)
    found: defaultdict[str, set[str]] = defaultdict(set)
    for trace_id, scope in rows:
        found[trace_id] |= {scope} if scope else possible[trace_id]
    return found


def owner_scopes(connection: Connection, refs: Iterable[str]) -> set[str]:
    """Return the scopes that the spans may be of that list one of `refs` among their outputs: of the first and of the
    last one in each part of the file, so that what it costs does not go with the number of versions."""
    rows = connection.execute(_OWNER_SCOPES, (json.dumps([_hash_of(ref) for ref in refs]),)).fetchall()
    return {scope for _, scope in rows if scope}.union(*_possible(connection, rows).values())


def reader_scopes(connection: Connection, trace_ids: Iterable[str]) -> list[tuple[str, str, set[str]]]:
    """Return (one of these traces, a trace that read what a span of it produced, the scopes its span may be of), but
    for readers of the very scope of that span."""
    connection.create_function("hash_of", 1, _hash_of, deterministic=True)
    rows = connection.execute(_READER_SCOPES, (json.dumps(list(trace_ids)),)).fetchall()
    possible = _possible(connection, [row[1:] for row in rows])
    return [(trace_id, reader, {scope} if scope else possible[reader]) for trace_id, reader, scope in rows]


def changed_elsewhere(connection: Connection, written: Iterable[tuple[str, str]], refs: Iterable[str]) -> set[str]:
    """Return the traces of the spans that change a record and read what one of these spans (origin, scope), of another
    scope or of none, wrote, or list one of `refs` among their outputs; seldom one more."""
    connection.create_function("hash_of", 1, _hash_of, deterministic=True)
    made = [(_hash_of(origin), scope) for origin, scope in written]
    read = connection.execute(_CHANGED, (json.dumps(made),)).fetchall()
    listed = connection.execute(_CHANGED_REFS, (json.dumps(list(refs)),)).fetchall()
    return {trace_id for (trace_id,) in (*read, *listed)}


def _possible(connection: Connection, rows: Iterable[tuple[str, str]]) -> dict[str, set[str]]:
    """Return what a span without a scope may be of, by trace: the scope of one around it, if any."""
    found = {trace_id: {""} for trace_id, scope in rows if not scope}
    for trace_id, scope in connection.execute(_SCOPES, (json.dumps(list(found)),)) if found else ():
        found[trace_id].add(scope)
    return found


def _hash_of(name: str) -> int:
    digest = blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest) & _HASH_MASK


_PARTS = """
RECURSIVE part (base, least) AS (
    SELECT max({0}) >> {1} << {1}, (SELECT min({0}) FROM {2}) >> {1} << {1} FROM {2}
    UNION ALL SELECT base - (1 << {1}), least FROM part WHERE base > least
)
"""
_READER_PARTS, _WRITER_PARTS = _PARTS.format("origin", HASH_BITS, "reader"), _PARTS.format("ref", HASH_BITS, "writer")
_READERS = f"WITH {_READER_PARTS} SELECT span FROM part CROSS JOIN reader ON origin = base | :hash"
_OF_WRITERS = "FROM part CROSS JOIN writer ON ref = base | :hash CROSS JOIN span ON id = span"
_WRITERS = f"WITH {_WRITER_PARTS} SELECT DISTINCT trace_id {_OF_WRITERS}"
_WRITER_SCOPES = f"WITH {_WRITER_PARTS} SELECT DISTINCT trace_id, scope {_OF_WRITERS}"
_SCOPES = "SELECT DISTINCT trace_id, scope FROM span WHERE trace_id IN (SELECT value FROM json_each(?))"
_MADE = """
made (trace_id, scope, hash) AS MATERIALIZED (
    SELECT trace_id, scope, hash_of(trace_id || '-' || span_id)
    FROM span WHERE trace_id IN (SELECT value FROM json_each(?))
)
"""
_OF_READERS = "FROM made CROSS JOIN part CROSS JOIN reader ON origin = base | hash CROSS JOIN span ON id = reader.span"
_READER_SCOPES = f"""
WITH {_READER_PARTS}, {_MADE}
SELECT DISTINCT made.trace_id, span.trace_id, span.scope {_OF_READERS} WHERE span.scope <> made.scope OR span.scope = ''
"""
_CHANGES = f"span.kind IN {tuple(sorted(map(str, CHANGING_KINDS)))}"
_CHANGED = f"""
WITH {_READER_PARTS}, made (hash, scope) AS MATERIALIZED (
    SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]') FROM json_each(?)
)
SELECT DISTINCT span.trace_id {_OF_READERS} WHERE (span.scope <> made.scope OR span.scope = '') AND {_CHANGES}
"""
_CHANGED_REFS = f"""
WITH {_WRITER_PARTS}, named (hash) AS MATERIALIZED (SELECT hash_of(value) FROM json_each(?))
SELECT DISTINCT span.trace_id
FROM named CROSS JOIN part CROSS JOIN writer ON ref = base | hash CROSS JOIN span ON id = writer.span WHERE {_CHANGES}
"""
_OWNER_SCOPES = f"""
WITH {_WRITER_PARTS}, named (hash) AS MATERIALIZED (SELECT value FROM json_each(?)), owner (id) AS (
    SELECT (SELECT min(span) FROM writer WHERE ref = base | hash) FROM named CROSS JOIN part
    UNION SELECT (SELECT max(span) FROM writer WHERE ref = base | hash) FROM named CROSS JOIN part
)
SELECT DISTINCT trace_id, scope FROM owner CROSS JOIN span USING (id)
"""
_WRITERS_BEFORE = """
SELECT trace_id FROM writer CROSS JOIN span ON id = span WHERE ref = ? AND span < ? ORDER BY span DESC LIMIT ?
"""
_BOUNDS = f"SELECT (SELECT max(id) FROM span WHERE trace_id = ?), (SELECT min(ref) >> {HASH_BITS} FROM writer)"
