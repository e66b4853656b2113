"""`forget`: which rows hold contents of a memory scope, and erasing them a few at a time."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence, Set
from contextlib import suppress
from dataclasses import dataclass, field
from sqlite3 import Connection
from typing import NamedTuple

from opentelemetry.proto.trace.v1.trace_pb2 import Span

from memtrace_otel import semconv
from memtrace_otel.model import is_origin, make_origin
from memtrace_otel.otlp.decode import indexed_fields
from memtrace_otel.sources.bodies import UNDECODABLE, Bodies, drop_dictionaries, pack_again_from
from memtrace_otel.sources.connection import Locked, file_of, in_turns, snapshot, transaction
from memtrace_otel.sources.erasing import Erasing
from memtrace_otel.sources.erasure import Rename, erase_inputs, erase_span, erase_verdict
from memtrace_otel.sources.errors import StoreError
from memtrace_otel.sources.lineage import add_to_indexes, readers_of, remove_from_indexes
from memtrace_otel.sources.log import copy_of
from memtrace_otel.sources.rows import has_span
from memtrace_otel.sources.space import compact
from memtrace_otel.sources.streams import release_streams
from memtrace_otel.sources.upkeep import Forgotten

_BATCH = 16
_NOTHING = b"\xff"
"""No span."""
_TRACE_ID = re.compile(rb"\x0a\x10(?=(.{16}))", re.DOTALL)
"""A trace id in a protobuf span, also in bytes that cannot be parsed."""
_TRACE = re.compile(r"(?<![0-9a-f])[0-9a-f]{32}(?![0-9a-f])")
"""A trace id in a text, alone or in an origin."""
_OWN = "SELECT id, trace_id, name FROM span WHERE kind = '' AND scope = '' AND (name = ? OR name LIKE ? OR name LIKE ?)"
_OWN_NAMES = (
    semconv.ATTRIBUTION_ROOT_SPAN,
    f"{semconv.ATTRIBUTION_EVIDENCE_SPAN} %",
    f"{semconv.MARKER_SPAN} %",
)


@dataclass(slots=True)
class _Found:
    """The traces of a scope, the spans to erase (row id by origin), the rows of other scopes that read from these, and
    the attributions that may quote any of it: their ids, or their traces where no id is known."""

    traces: set[str] = field(default_factory=set[str])
    spans: dict[str, int] = field(default_factory=dict[str, int])
    readers: list[int] = field(default_factory=list[int])
    attributions: set[str] = field(default_factory=set[str])


class _Own(NamedTuple):
    """A span of an attribution, and whether it names a trace that is looked for."""

    id: int
    trace_id: str
    name: str
    attribution: str
    is_wanted: bool


def forget(locked: Locked, scope: str, *, rewrite: bool) -> Forgotten:
    """Erase the contents of `scope` (see `StoreUpkeep.forget`); what waits in the inbox has been decoded."""
    with locked() as connection:
        with snapshot(connection):
            found = _find(connection, scope)
        erasing = Erasing.begin(connection, scope)

    def erase(connection: Connection, batch: Sequence[int]) -> None:
        for id in erasing.left(connection, batch):
            _erase(connection, id, found, erasing)

    in_turns(locked, (*found.spans.values(), *found.readers), _BATCH, erase)
    drop_dictionaries(locked, (scope, *_scopes(locked, found.readers)))
    with locked() as connection:
        verdicts = _erased_verdicts(connection, found, erasing.rename)
        quarantined = _unreadable(connection, scope, found)
        with transaction(connection):
            connection.executemany("UPDATE verdict SET document = ? WHERE attribution_id = ?", verdicts)
            connection.executemany("UPDATE quarantine SET body = x'' WHERE id = ?", quarantined)
            references = erasing.end(connection)
        with suppress(OSError):
            copy_of(file_of(connection)).unlink()
    finished = rewrite and _overwritten(locked)
    return Forgotten(len(found.spans), len(found.readers), len(verdicts), len(quarantined), references, finished)


def _erase(connection: Connection, id: int, found: _Found, erasing: Erasing) -> None:
    span = _span(connection, id)
    if span is None:
        return  # pruned meanwhile
    references: list[str] = []
    if make_origin(span.trace_id.hex(), span.span_id.hex()) in found.spans:
        references = erase_span(span, erasing.rename, _others(connection, span, found))
    else:
        erase_inputs(span, found.spans.keys(), erasing.rename)
    _write(connection, id, span)
    erasing.done(connection, id, references)


def _others(connection: Connection, span: Span, found: _Found) -> set[str]:
    """Return the origins that `span` read from and that are not erased."""
    origins = filter(is_origin, _origins_read(span) - found.spans.keys())
    return {origin for origin in origins if has_span(connection, origin)}


def _scopes(locked: Locked, ids: Iterable[int]) -> set[str]:
    """Return the scopes of rows: their dictionaries may hold what the spans had read."""
    query = "SELECT scope FROM span WHERE id = ?"
    with locked() as connection:
        return {scope for id in ids for (scope,) in connection.execute(query, (id,))}


def _overwritten(locked: Locked) -> bool:
    """Freed pages and the log still hold what was erased: write the file anew, or say that this is left to do."""
    try:
        return compact(locked).finished
    except (StoreError, OSError):  # the disk is full, another process does not let go of the write lock
        return False


def _find(connection: Connection, scope: str) -> _Found:
    found = _Found()
    rows = connection.execute("SELECT trace_id, span_id, id FROM span WHERE scope = ?", (scope,)).fetchall()
    found.spans = {make_origin(trace_id, span_id): id for trace_id, span_id, id in rows}
    _follow(connection, found, {trace_id for trace_id, _, _ in rows}, set(found.spans))
    if found.spans:
        readers = _other_readers(connection, found)
        found.readers = sorted(readers)
        _add_attributions(connection, found, found.traces.union(readers.values()))
    return found


def _follow(connection: Connection, found: _Found, traces: set[str], origins: set[str]) -> None:
    """Add the spans without a scope in `traces`, then those that read `origins` or what was added, to the end."""
    while traces or origins:
        found.traces |= traces
        for trace_id in traces:
            origins |= _add(connection, found, "trace_id = ?", trace_id)
        traces = set[str]()
        for origin in origins:
            traces.update(span.trace_id.hex() for _, scope, span in _readers(connection, origin) if not scope)
        traces -= found.traces
        origins = set[str]()


def _add(connection: Connection, found: _Found, condition: str, value: str | int) -> set[str]:
    """Add the spans without a scope that meet `condition`; return the origins of those that are new."""
    # by trace or row: the plus sign hides the index over all spans without a scope
    query = f"SELECT trace_id, span_id, id FROM span WHERE +scope = '' AND {condition}"
    rows = {make_origin(trace_id, span_id): id for trace_id, span_id, id in connection.execute(query, (value,))}
    new = rows.keys() - found.spans.keys()
    found.spans.update(rows)
    return new


def _add_attributions(connection: Connection, found: _Found, traces: Set[str]) -> None:
    """Add our own spans of every attribution that names one of `traces` anywhere: its answer, the decisive operation, a
    step of the evidence, an alternative. They may be in any trace."""
    verdicts = connection.execute("SELECT attribution_id, answer || ' ' || document FROM verdict")
    found.attributions = {id for id, text in verdicts if not traces.isdisjoint(_TRACE.findall(text))}
    own = [
        _Own(id, trace_id, name, _attribution_id(span), not traces.isdisjoint(_named(span)))
        for id, trace_id, name in connection.execute(_OWN, _OWN_NAMES).fetchall()
        if (span := _span(connection, id))
    ]
    roots = {span.trace_id: span.attribution for span in own if span.name == semconv.ATTRIBUTION_ROOT_SPAN}

    def attribution(span: _Own) -> str:
        return span.attribution or roots.get(span.trace_id) or span.trace_id

    found.attributions.update(attribution(span) for span in own if span.is_wanted)
    for span in own:
        if attribution(span) in found.attributions:
            is_marker = span.name.startswith(semconv.MARKER_SPAN)
            _add(connection, found, *(("id = ?", span.id) if is_marker else ("trace_id = ?", span.trace_id)))


def _attribution_id(span: Span) -> str:
    """Return what markers and roots say; steps do not."""
    return next((pair.value.string_value for pair in span.attributes if pair.key == semconv.ATTRIBUTION_ID), "")


def _named(span: Span) -> set[str]:
    """Return the traces that an attribution's span is in or names in links and texts."""
    values = [value for pair in span.attributes for value in (pair.value, *pair.value.array_value.values)]
    texts = " ".join(value.string_value for value in values)
    return {span.trace_id.hex(), *(link.trace_id.hex() for link in span.links), *_TRACE.findall(texts)}


def _other_readers(connection: Connection, found: _Found) -> dict[int, str]:
    """Return rows and traces of the spans of other scopes that read what is to be erased."""
    erased = set(found.spans.values())
    readers = (reader for origin in found.spans for reader in _readers(connection, origin, erased))
    return {id: span.trace_id.hex() for id, _, span in readers}


def _readers(
    connection: Connection, origin: str, known: Collection[int] = frozenset()
) -> Iterator[tuple[int, str, Span]]:
    """Yield row id, scope and span of what reads from `origin`, without the rows that are `known`."""
    for id in readers_of(connection, origin):
        span = None if id in known else _span(connection, id)
        if span is not None and origin in _origins_read(span):  # its number may be that of another name
            (scope,) = connection.execute("SELECT scope FROM span WHERE id = ?", (id,)).fetchone()
            yield id, scope, span


def _origins_read(span: Span) -> set[str]:
    return set(indexed_fields(span.SerializeToString()).origins)


def _erased_verdicts(connection: Connection, found: _Found, rename: Rename) -> list[tuple[str, str]]:
    rows = connection.execute("SELECT attribution_id, document FROM verdict").fetchall()
    return [(erase_verdict(document, rename), id) for id, document in rows if id in found.attributions]


def _unreadable(connection: Connection, scope: str, found: _Found) -> list[tuple[int]]:
    traces = {bytes.fromhex(trace_id) for trace_id in found.traces}
    return [
        (id,)
        for id, body in connection.execute("SELECT id, body FROM quarantine")
        if scope.encode() in body or not traces.isdisjoint(_TRACE_ID.findall(body))
    ]


def _span(connection: Connection, id: int) -> Span | None:
    """Read a row; of one that cannot be decoded only what its columns tell, and that is then what stays of it."""
    query = "SELECT body, trace_id, span_id, name, start FROM span WHERE id = ?"
    row = connection.execute(query, (id,)).fetchone()
    if row is None:
        return None
    body, trace_id, span_id, name, start = row
    try:
        return Span.FromString(Bodies(connection).read(body, trace_id, span_id))
    except UNDECODABLE:
        ids = bytes.fromhex(trace_id), bytes.fromhex(span_id)
        return Span(trace_id=ids[0], span_id=ids[1], name=name, start_time_unix_nano=start, end_time_unix_nano=start)


def _write(connection: Connection, id: int, span: Span) -> None:
    query = "SELECT body, trace_id, span_id FROM span WHERE id = ?"
    try:
        before = Bodies(connection).read(*connection.execute(query, (id,)).fetchone())
    except UNDECODABLE:
        before = _NOTHING
    body = span.SerializeToString()
    after = indexed_fields(body)
    remove_from_indexes(connection, id, before, after)  # the refs may have become others
    connection.execute("UPDATE span SET body = ? WHERE id = ?", (body, id))
    release_streams(connection, id)
    pack_again_from(connection, id)
    add_to_indexes(connection, ((id, after),))
