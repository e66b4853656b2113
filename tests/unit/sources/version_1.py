"""A database file as schema version 1 wrote it: its statements as they were, and its rows. Not to be changed.

python -m tests.unit.sources.version_1 FILE
"""

from __future__ import annotations

import hashlib
import sqlite3
import sys
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import ResourceSpans, ScopeSpans

from memtrace_otel.model import OperationSpan
from memtrace_otel.otlp import encode_request
from memtrace_otel.otlp.decode import parse_request
from tests.unit.graph.conftest import life_of_a_fact

STATEMENTS = (
    "CREATE TABLE inbox (id INTEGER PRIMARY KEY AUTOINCREMENT, body BLOB NOT NULL, received INTEGER NOT NULL)",
    """CREATE TABLE quarantine (
        id INTEGER PRIMARY KEY, body BLOB NOT NULL, reason TEXT NOT NULL, received INTEGER NOT NULL
    )""",
    "CREATE TABLE source (id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, body BLOB NOT NULL)",
    """CREATE TABLE span (
        id INTEGER PRIMARY KEY,
        trace_id TEXT NOT NULL,
        span_id TEXT NOT NULL,
        name TEXT NOT NULL,
        kind TEXT NOT NULL,
        scope TEXT NOT NULL,
        start INTEGER NOT NULL,
        source INTEGER NOT NULL REFERENCES source (id),
        body BLOB NOT NULL,
        UNIQUE (trace_id, span_id)
    )""",
    "CREATE INDEX span_start ON span (start)",
    "CREATE INDEX span_kind ON span (kind, start)",
    "CREATE INDEX span_scope ON span (scope, start)",
    """CREATE TABLE reader (
        origin TEXT NOT NULL, span INTEGER NOT NULL REFERENCES span (id), PRIMARY KEY (origin, span)
    ) WITHOUT ROWID""",
    """CREATE TABLE verdict (
        attribution_id TEXT PRIMARY KEY, answer TEXT NOT NULL, document TEXT NOT NULL, created INTEGER NOT NULL
    )""",
    "CREATE INDEX verdict_answer ON verdict (answer, created)",
    """CREATE TABLE sent (
        target TEXT NOT NULL, span_id TEXT NOT NULL, sent_at INTEGER NOT NULL, PRIMARY KEY (target, span_id)
    ) WITHOUT ROWID""",
    f"PRAGMA application_id = {0x4D54_4F54}",
    "PRAGMA user_version = 1",
)


def write(path: Path, spans: Sequence[OperationSpan], waiting: Sequence[OperationSpan] = ()) -> None:
    """Make a file that holds `spans` decoded, a verdict and a sent id, and `waiting` in its inbox."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("BEGIN")
        for statement in STATEMENTS:
            connection.execute(statement)
        _insert(connection, spans)
        if waiting:
            connection.execute("INSERT INTO inbox (body, received) VALUES (?, 7)", (encode_request(waiting),))
        connection.execute("INSERT INTO quarantine (body, reason, received) VALUES (x'00', 'torn', 7)")
        connection.execute("""INSERT INTO verdict VALUES ('id-1', 'answer-1', '{"failure_type": "update"}', 7)""")
        connection.execute("INSERT INTO sent VALUES ('http://target', 'f00d', 7)")
        connection.execute("COMMIT")


def _insert(connection: sqlite3.Connection, spans: Sequence[OperationSpan]) -> None:
    readers = {span.origin: {v.origin for v in span.inputs if v.origin} for span in spans}
    scopes = {span.origin: (span.kind, span.scope) for span in spans}
    for group in parse_request(encode_request(spans)):
        parts = ResourceSpans(resource=group.resource, scope_spans=[ScopeSpans(scope=group.scope)])
        source = ExportTraceServiceRequest(resource_spans=[parts]).SerializeToString(deterministic=True)
        digest = hashlib.sha256(source).digest()[:16]
        connection.execute("INSERT OR IGNORE INTO source (digest, body) VALUES (?, ?)", (digest, source))
        (source_id,) = connection.execute("SELECT id FROM source WHERE digest = ?", (digest,)).fetchone()
        for span in group.spans:
            ids = span.trace_id.hex(), span.span_id.hex()
            row = (*ids, span.name, *scopes["-".join(ids)], span.start_time_unix_nano, source_id)
            id = connection.execute(
                "INSERT INTO span (trace_id, span_id, name, kind, scope, start, source, body)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                (*row, span.SerializeToString()),
            ).lastrowid
            origins = readers["-".join(ids)]
            connection.executemany("INSERT INTO reader VALUES (?, ?)", [(origin, id) for origin in origins])


if __name__ == "__main__":
    write(Path(sys.argv[1]), life_of_a_fact())
