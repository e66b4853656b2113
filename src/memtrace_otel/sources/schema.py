"""The tables of the database file, and the check that a file has these tables and nothing else.

Ids and origins are bytes: a trace id 16, a span id 8, an origin 24 (trace id, then span id). `hex()` shows them in
SQLite's shell. The file is of one version: another version is refused by name.
"""

from __future__ import annotations

import sqlite3
from functools import cache
from sqlite3 import Connection

VERSION = 1
APPLICATION_ID = 0x4D54_4F54
"""`MTOT`: tells our files from any other SQLite database."""
INPUT, OUTPUT = 0, 1
"""Values of `variable.direction`."""

VERDICT_MEMBERS = ("failure_type", "method", "confidence", "answered", "system", "service", "scope", "operation")
"""Members of a verdict's document that are columns, too."""


STATEMENTS = (
    # Requests as received, committed before they are acknowledged; deleted once their spans are rows.
    "CREATE TABLE inbox (id INTEGER PRIMARY KEY AUTOINCREMENT, body BLOB NOT NULL, received INTEGER NOT NULL)",
    # Requests, or spans of one, that could not be decoded. They are kept: a later version may decode them.
    """CREATE TABLE quarantine (
        id INTEGER PRIMARY KEY, body BLOB NOT NULL, reason TEXT NOT NULL, received INTEGER NOT NULL
    )""",
    # Resource and instrumentation scope, shared by many spans: an OTLP request without spans.
    "CREATE TABLE resource (id INTEGER PRIMARY KEY, digest BLOB NOT NULL UNIQUE, body BLOB NOT NULL)",
    # One row per span. `body` is the protobuf span, compressed (`compression`); the other columns are for queries.
    """CREATE TABLE span (
        id INTEGER PRIMARY KEY AUTOINCREMENT,
        trace BLOB NOT NULL,
        span BLOB NOT NULL,
        parent BLOB NOT NULL,
        part INTEGER NOT NULL,
        kind TEXT NOT NULL,
        scope TEXT NOT NULL,
        start INTEGER NOT NULL,
        "end" INTEGER NOT NULL,
        evaluates INTEGER NOT NULL,
        resource INTEGER NOT NULL REFERENCES resource (id),
        body BLOB NOT NULL,
        UNIQUE (trace, span)
    )""",
    "CREATE INDEX span_start ON span (start)",
    "CREATE INDEX span_scope ON span (scope, start)",
    "CREATE INDEX span_kind ON span (kind, start)",
    "CREATE INDEX span_parent ON span (trace, parent) WHERE parent <> x''",
    "CREATE INDEX span_evaluates ON span (start) WHERE evaluates = 1",
    # The inputs (direction 0) and outputs (direction 1) of spans. `origin` is '' for outputs and unknown origins.
    """CREATE TABLE variable (
        span INTEGER NOT NULL REFERENCES span (id),
        direction INTEGER NOT NULL,
        position INTEGER NOT NULL,
        ref TEXT NOT NULL,
        origin BLOB NOT NULL,
        role TEXT NOT NULL,
        action TEXT NOT NULL,
        digest BLOB NOT NULL,
        PRIMARY KEY (span, direction, position)
    ) WITHOUT ROWID""",
    "CREATE INDEX variable_ref ON variable (ref) WHERE origin = ''",
    "CREATE INDEX variable_origin ON variable (origin) WHERE origin <> ''",
    # `document` is JSON; its members that pages filter by are columns. `answered` is ns since the epoch. The document
    # is the last column: a scan of the others reads none of its overflow pages.
    f"""CREATE TABLE verdict (
        attribution_id TEXT PRIMARY KEY, answer TEXT NOT NULL, created INTEGER NOT NULL,
        {", ".join(VERDICT_MEMBERS)},
        document TEXT NOT NULL
    )""",
    "CREATE INDEX verdict_answer ON verdict (answer, created)",
    "CREATE INDEX verdict_answered ON verdict (answered)",
    # What people say of answers. `document` is the JSON of `model.Review`.
    """CREATE TABLE review (
        answer TEXT NOT NULL, annotator TEXT NOT NULL, status TEXT NOT NULL, document TEXT NOT NULL,
        created INTEGER NOT NULL, PRIMARY KEY (answer, annotator, status)
    )""",
    # Span ids already sent to a target: an id is never sent twice.
    """CREATE TABLE sent (
        target TEXT NOT NULL, span_id TEXT NOT NULL, sent_at INTEGER NOT NULL, PRIMARY KEY (target, span_id)
    ) WITHOUT ROWID""",
    f"PRAGMA application_id = {APPLICATION_ID}",
    f"PRAGMA user_version = {VERSION}",
)


def is_ours(connection: Connection) -> bool:
    """Tell whether the file has exactly these tables and indexes: no view, no trigger, no computed column.

    A view or computed column in the place of a table could make any number of rows of any size.
    """
    return _definitions(connection) == _expected()


def _definitions(connection: Connection) -> set[tuple[str, str, str | None]]:
    query = "SELECT type, name, sql FROM sqlite_master WHERE name NOT LIKE 'sqlite@_%' ESCAPE '@' LIMIT 100"
    return set(connection.execute(query).fetchall())


@cache
def _expected() -> set[tuple[str, str, str | None]]:
    connection = sqlite3.connect(":memory:")
    for statement in STATEMENTS:
        connection.execute(statement)
    found = _definitions(connection)
    connection.close()
    return found
