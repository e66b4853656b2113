"""The indexes of lineage: which spans read what a span produced, which spans list a variable among their outputs.

A name is indexed by its hash, behind the number of the part of the file that the span is in: names are random, and with
the hash alone every new span would write pages all over indexes that grow with the file. So it writes the pages of the
newest part, and who asks looks into each part. Two names may share a hash: what is found is compared by name.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from sqlite3 import Connection

from google.protobuf.message import DecodeError
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from memtrace_otel.otlp.decode import IndexedFields, indexed_fields

PART_BITS, HASH_BITS = 15, 40
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
        fields = indexed_fields(Span.FromString(body))
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
    for part in range((last or 0) >> PART_BITS, ((first or 0) >> PART_BITS) - 1, -1):
        key = part << HASH_BITS | _hash_of(ref)
        found += [writer for (writer,) in connection.execute(_WRITERS_BEFORE, (key, last, most - len(found)))]
        if len(found) >= most:
            break
    return found


def _hash_of(name: str) -> int:
    digest = hashlib.blake2b(name.encode("utf-8", "surrogatepass"), digest_size=8).digest()
    return int.from_bytes(digest[-HASH_BITS // 8 :], "big")


_PARTS = f"""
WITH RECURSIVE part (key, least) AS (
    SELECT
        (SELECT max(id) FROM span) >> {PART_BITS} << {HASH_BITS} | :hash,
        (SELECT min(id) FROM span) >> {PART_BITS} << {HASH_BITS} | :hash
    UNION ALL SELECT key - (1 << {HASH_BITS}), least FROM part WHERE key > least
)
"""
_READERS = f"{_PARTS} SELECT span FROM part CROSS JOIN reader ON origin = key"
_WRITERS = f"{_PARTS} SELECT DISTINCT trace_id FROM part CROSS JOIN writer ON ref = key CROSS JOIN span ON id = span"
_WRITERS_BEFORE = """
SELECT trace_id FROM writer CROSS JOIN span ON id = span WHERE ref = ? AND span < ? ORDER BY span DESC LIMIT ?
"""
_BOUNDS = "SELECT (SELECT max(id) FROM span WHERE trace_id = ?), (SELECT min(id) FROM span)"
