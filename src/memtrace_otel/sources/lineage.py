"""SQL over the `variable` table: who wrote and changed a record, and the operations behind an operation."""

from __future__ import annotations

from collections.abc import Iterable
from sqlite3 import Connection

from memtrace_otel.semconv import CHANGING_KINDS
from memtrace_otel.sources.ingest import pack_origin


def lineage(connection: Connection, origins: Iterable[str], most: int) -> list[str]:
    """Return the origins of up to `most` operations behind some operations; these first."""
    starts = [id for origin in origins for id in _rows_of(connection, origin)]
    if not starts:
        return []
    values = ", ".join(["(?, 0, 0)"] * len(starts))
    query = _BEHIND.format(starts=values)
    return [f"{trace.hex()}-{span.hex()}" for trace, span in connection.execute(query, (*starts, most))]


def writers(connection: Connection, ref: str) -> list[str]:
    """Return the ids of the traces that list a variable among their outputs."""
    query = (
        "SELECT DISTINCT trace FROM variable CROSS JOIN span ON id = variable.span"
        " WHERE ref = ? AND origin = '' AND direction = 1"
    )
    return [trace.hex() for (trace,) in connection.execute(query, (ref,))]


def changed_elsewhere(connection: Connection, written: Iterable[tuple[str, str]], refs: Iterable[str]) -> set[str]:
    """Return the ids of the traces with a span that changes a record, and that reads what a span (origin, scope) of
    another scope wrote, or lists one of `refs` among its outputs."""
    found: set[str] = set()
    for origin, scope in written:
        found.update(trace.hex() for (trace,) in connection.execute(_CHANGED, (pack_origin(origin), scope)))
    for ref in refs:
        found.update(trace.hex() for (trace,) in connection.execute(_CHANGED_REF, (ref,)))
    return found


def _rows_of(connection: Connection, origin: str) -> list[int]:
    packed = pack_origin(origin)
    if isinstance(packed, str):
        return []
    query = "SELECT id FROM span WHERE trace = ? AND span = ?"
    return [id for (id,) in connection.execute(query, (packed[:16], packed[16:]))]


_CHANGES = f"span.kind IN {tuple(sorted(map(str, CHANGING_KINDS)))}"
_CHANGED = f"""
SELECT DISTINCT trace FROM variable CROSS JOIN span ON id = variable.span
WHERE origin = ? AND origin <> '' AND (scope <> ? OR scope = '') AND {_CHANGES}
"""
_CHANGED_REF = f"""
SELECT DISTINCT trace FROM variable CROSS JOIN span ON id = variable.span
WHERE ref = ? AND origin = '' AND direction = 1 AND {_CHANGES}
"""
_KIND = "substr(v.ref, 1, instr(v.ref, ':') - 1)"
_IS_RECORD = f"{_KIND} IN ('memory', 'state', 'chunk', 'document')"
_IS_LASTING = f"{_KIND} IN ('memory', 'state', 'chunk', 'document', 'fact')"
"""Kinds of refs that mean the same thing in several traces."""
_ANSWERS = "IN ('respond', 'judge')"
_WRITERS_BEFORE = f"""
    UNION
    SELECT writer.id, 0, by_record OR {_IS_RECORD} FROM reached
    CROSS JOIN span AS here ON here.id = reached.id
    CROSS JOIN variable AS v ON v.span = here.id AND v.origin = ''
    CROSS JOIN span AS writer ON writer.id IN (
        SELECT other.id FROM variable AS written CROSS JOIN span AS other ON other.id = written.span
        WHERE written.ref = v.ref AND written.origin = '' AND written.direction = 1
        AND other.start <= here.start AND other.id <> here.id AND {{same}} ORDER BY other.start DESC LIMIT 3
    )
    WHERE (v.direction = 0 OR v.action NOT IN ('ADD', 'UPDATE', 'DELETE'))
    AND NOT (by_record AND {_KIND} = 'query')
    AND NOT ((by_record OR {_IS_RECORD}) AND writer.kind {_ANSWERS})
"""
"""Of a read from an unknown origin, or an output that was not written: the last writers of the ref before the read."""

# Columns: the row of the span; whether only its inputs are of interest; whether the way came by a record. Behind a
# record no question and no answering operation is entered: they made an earlier answer, not this record.
_BEHIND = f"""
WITH RECURSIVE reached (id, inputs_only, by_record) AS (
    VALUES {{starts}}
    -- by a recorded origin
    UNION
    SELECT writer.id, 0, by_record OR {_IS_RECORD} FROM reached
    CROSS JOIN variable AS v ON v.span = reached.id AND v.direction = 0 AND v.origin <> ''
    CROSS JOIN span AS writer ON writer.trace = substr(v.origin, 1, 16) AND writer.span = substr(v.origin, 17)
    WHERE NOT (by_record AND {_KIND} = 'query')
    AND NOT ((by_record OR {_IS_RECORD}) AND writer.kind {_ANSWERS})
    -- by an unknown origin
{_WRITERS_BEFORE.format(same="other.trace = here.trace")}
{_WRITERS_BEFORE.format(same=f"other.scope = here.scope AND {_IS_LASTING}")}
{_WRITERS_BEFORE.format(same=_IS_LASTING)}
    -- inside: continuations, and operations that wrote what this operation lists
    UNION
    SELECT child.id, 0, by_record FROM reached
    CROSS JOIN span AS here ON here.id = reached.id
    CROSS JOIN span AS child ON child.trace = here.trace AND child.parent = here.span AND child.parent <> x''
    WHERE child.part > 0 OR (NOT inputs_only AND ('' IN (child.kind, here.kind) OR EXISTS (
        SELECT 1 FROM variable AS v CROSS JOIN variable AS listed
        ON listed.ref = v.ref AND listed.origin = '' AND listed.span = here.id AND listed.direction = 1
        WHERE v.span = child.id AND v.direction = 1
    )))
    -- around: a continuation belongs to its parent; a step without inputs worked on the inputs of the step around it
    UNION
    SELECT above.id, 1, by_record FROM reached
    CROSS JOIN span AS here ON here.id = reached.id
    CROSS JOIN span AS above ON above.trace = here.trace AND above.span = here.parent
    WHERE here.part > 0 OR NOT EXISTS (SELECT 1 FROM variable AS v WHERE v.span = here.id AND v.direction = 0)
)
SELECT DISTINCT span.trace, span.span FROM reached CROSS JOIN span USING (id) LIMIT ?
"""
