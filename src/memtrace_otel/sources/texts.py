"""Find the traces of a memory whose texts hold given words, without decoding the spans.

The bodies are decompressed and searched one after another. A full-text index would cost space in the file and time at
each write, and would keep the words of a forgotten memory (docs/adr/0019).
"""

from __future__ import annotations

import re
from collections.abc import Collection
from sqlite3 import Connection

from memtrace_otel import semconv
from memtrace_otel.semconv import CHANGING_KINDS, READING_KINDS, Incomplete, OpKind
from memtrace_otel.sources.compression import decompress
from memtrace_otel.sources.ingest import UNDECODABLE, decode_body
from memtrace_otel.sources.lineage import IS_LASTING

_KINDS = tuple(sorted(map(str, (CHANGING_KINDS - {OpKind.OTHER}) | {OpKind.RESPOND})))
"""Operations that show a message, a document, a fact or a record for the first time."""
_IDS = re.compile(r"(?=[0-9-]*[a-f])[0-9a-f-]{16,}")
"""Ids and digests: they hold any short number."""
_NO_GAP = frozenset({Incomplete.INFERRED, Incomplete.TRUNCATED, Incomplete.REDACTED})


def words_by_trace(
    connection: Connection, scopes: Collection[str], words: Collection[str]
) -> dict[str, set[str]] | None:
    """Return the traces with a span of the scopes, each with the words, in small letters, that its texts hold.

    A word counts also as a part of a longer word.

    None when the memory has a gap: a span with a reason of incompleteness, one that cannot be decoded, or a record or
    fact whose writing operation is missing.
    """
    places = ", ".join("?" * len(scopes))
    values = tuple(scopes)
    if connection.execute(_MISSING.format(scopes=places), values).fetchone():
        return None
    traces = connection.execute(f"SELECT DISTINCT trace FROM span WHERE scope IN ({places})", values)
    found = {trace.hex(): set[str]() for (trace,) in traces}
    numbers = {word for word in words if word[:1].isdigit()}
    for trace, stored in connection.execute(_BODIES.format(scopes=places), values):
        try:
            body = decompress(stored)
            text = body.decode("utf-8", "replace")
            if semconv.INCOMPLETE in text:
                reasons = {reason.partition(":")[0] for reason in decode_body(body, ({}, "")).incomplete}
                if not reasons <= _NO_GAP:
                    return None
        except UNDECODABLE:
            return None
        small = text.casefold()
        held = {word for word in words if word in small}
        if not held.isdisjoint(numbers):
            small = _IDS.sub("", small)
            held = {word for word in held if word in small}
        found[trace.hex()] |= held
    return found


def versions(connection: Connection, ref: str) -> list[str]:
    """Return the ids of the traces that write a version of a record, or read a version of an unknown origin to work on
    memory."""
    return [trace.hex() for (trace,) in connection.execute(_VERSIONS, (ref,))]


_VERSIONS = f"""
SELECT DISTINCT trace FROM variable CROSS JOIN span ON id = variable.span
WHERE ref = ? AND origin = '' AND action <> 'NONE' AND kind NOT IN {tuple(sorted(map(str, READING_KINDS)))}
"""
_BODIES = f"""
SELECT trace, body FROM span
WHERE kind IN {_KINDS} AND trace IN (SELECT trace FROM span WHERE scope IN ({{scopes}}))
"""
_MISSING = f"""
SELECT 1 FROM span AS reader CROSS JOIN variable AS v ON v.span = reader.id
WHERE reader.scope IN ({{scopes}}) AND v.direction = 0 AND v.origin <> '' AND {IS_LASTING}
AND NOT EXISTS (SELECT 1 FROM span WHERE trace = substr(v.origin, 1, 16) AND span = substr(v.origin, 17)) LIMIT 1
"""
