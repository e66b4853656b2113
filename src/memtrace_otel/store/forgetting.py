"""`forget`: which rows hold contents of a memory scope, and erasing them in one transaction."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from sqlite3 import Connection, OperationalError

from google.protobuf.message import DecodeError
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from memtrace_otel import semconv
from memtrace_otel.model import make_origin
from memtrace_otel.store.connection import transaction
from memtrace_otel.store.erasure import Rename, erase_inputs, erase_span, erase_verdict, renaming
from memtrace_otel.store.space import compact
from memtrace_otel.store.upkeep import Forgotten

_TRACE_ID = re.compile(rb"\x0a\x10(?=(.{16}))", re.DOTALL)
"""A trace id in a protobuf span, also in bytes that cannot be parsed."""


@dataclass(slots=True)
class _Found:
    """The traces of a scope and the spans to erase: row id by origin."""

    traces: set[str] = field(default_factory=set[str])
    spans: dict[str, int] = field(default_factory=dict[str, int])


def forget(connection: Connection, scope: str) -> Forgotten:
    """Erase the contents of `scope` (see `StoreUpkeep.forget`); what waits in the inbox has been decoded."""
    rename = renaming()
    references: dict[str, None] = {}
    with transaction(connection):
        found = _find(connection, scope)
        readers = _other_readers(connection, found)
        for id in found.spans.values():
            span = _span(connection, id)
            references.update(dict.fromkeys(erase_span(span, rename)))
            _write(connection, id, span)
        for id in readers:
            span = _span(connection, id)
            erase_inputs(span, found.spans.keys(), rename)
            _write(connection, id, span)
        verdicts = _erase_verdicts(connection, found, rename)
        quarantined = _empty_unreadable(connection, scope, found)
    finished = _overwritten(connection)
    return Forgotten(len(found.spans), len(readers), verdicts, quarantined, tuple(references), finished)


def _overwritten(connection: Connection) -> bool:
    """Freed pages and the log still hold what was erased: write the file anew, or say that this is left to do."""
    try:
        return compact(connection).finished
    except OperationalError:  # the disk is full, another process does not let go of the write lock
        return False


def _find(connection: Connection, scope: str) -> _Found:
    found = _Found()
    rows = connection.execute("SELECT trace_id, span_id, id FROM span WHERE scope = ?", (scope,)).fetchall()
    found.spans = {make_origin(trace_id, span_id): id for trace_id, span_id, id in rows}
    _follow(connection, found, {trace_id for trace_id, _, _ in rows}, set(found.spans))
    if found.spans:
        _add_attributions(connection, found)
    return found


def _follow(connection: Connection, found: _Found, traces: set[str], origins: set[str]) -> None:
    """Add the spans without a scope in `traces`, then those that read `origins` or what was added, to the end."""
    while traces or origins:
        found.traces |= traces
        for trace_id in traces:
            origins |= _add(connection, found, "trace_id = ?", trace_id)
        traces = set[str]()
        for origin in origins:
            query = "SELECT trace_id FROM span WHERE +scope = '' AND id IN (SELECT span FROM reader WHERE origin = ?)"
            traces |= {trace_id for (trace_id,) in connection.execute(query, (origin,))} - found.traces
        origins = set[str]()


def _add(connection: Connection, found: _Found, condition: str, value: str | int) -> set[str]:
    """Add the spans without a scope that meet `condition`; return the origins of those that are new."""
    # by trace or row: the plus sign hides the index over all spans without a scope
    query = f"SELECT trace_id, span_id, id FROM span WHERE +scope = '' AND {condition}"
    rows = {make_origin(trace_id, span_id): id for trace_id, span_id, id in connection.execute(query, (value,))}
    new = rows.keys() - found.spans.keys()
    found.spans.update(rows)
    return new


def _add_attributions(connection: Connection, found: _Found) -> None:
    """Add our own spans about an answer or an operation of these traces; they may be in any trace."""
    query = "SELECT id, trace_id FROM span WHERE kind = '' AND scope = '' AND (name = ? OR name LIKE ?)"
    names = semconv.ATTRIBUTION_ROOT_SPAN, f"{semconv.MARKER_SPAN} %"
    for id, trace_id in connection.execute(query, names).fetchall():
        span = _span(connection, id)
        answers = [pair.value.string_value[:32] for pair in span.attributes if pair.key == semconv.FAILURE_ANSWER]
        if found.traces.isdisjoint([*answers, *(link.trace_id.hex() for link in span.links)]):
            continue
        if span.name == semconv.ATTRIBUTION_ROOT_SPAN:
            _add(connection, found, "trace_id = ?", trace_id)
        else:
            _add(connection, found, "id = ?", id)


def _other_readers(connection: Connection, found: _Found) -> list[int]:
    erased = set(found.spans.values())
    query = "SELECT span FROM reader WHERE origin = ?"
    ids = {id for origin in found.spans for (id,) in connection.execute(query, (origin,))}
    return sorted(ids - erased)


def _erase_verdicts(connection: Connection, found: _Found, rename: Rename) -> int:
    rows = connection.execute("SELECT attribution_id, answer, document FROM verdict").fetchall()
    erased = [(erase_verdict(document, rename), id) for id, answer, document in rows if answer[:32] in found.traces]
    connection.executemany("UPDATE verdict SET document = ? WHERE attribution_id = ?", erased)
    return len(erased)


def _empty_unreadable(connection: Connection, scope: str, found: _Found) -> int:
    traces = {bytes.fromhex(trace_id) for trace_id in found.traces}
    mentioning = [
        (id,)
        for id, body in connection.execute("SELECT id, body FROM quarantine")
        if scope.encode() in body or not traces.isdisjoint(_TRACE_ID.findall(body))
    ]
    connection.executemany("UPDATE quarantine SET body = x'' WHERE id = ?", mentioning)
    return len(mentioning)


def _span(connection: Connection, id: int) -> Span:
    """Read a row; of one that cannot be decoded only what its columns tell, and that is then what stays of it."""
    query = "SELECT body, trace_id, span_id, name, start FROM span WHERE id = ?"
    body, trace_id, span_id, name, start = connection.execute(query, (id,)).fetchone()
    try:
        return Span.FromString(body)
    except DecodeError:
        ids = bytes.fromhex(trace_id), bytes.fromhex(span_id)
        return Span(trace_id=ids[0], span_id=ids[1], name=name, start_time_unix_nano=start, end_time_unix_nano=start)


def _write(connection: Connection, id: int, span: Span) -> None:
    connection.execute("UPDATE span SET body = ? WHERE id = ?", (span.SerializeToString(), id))
