"""The life of information in memory: source messages, what was extracted, what was written, what survived.

Built by identity alone (refs, origins, parents, flow); contents ride along where they were captured.
"""

from __future__ import annotations

import re
import weakref
from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime
from functools import cached_property
from weakref import WeakKeyDictionary

from memtrace_otel.attribution.dates import day_of, day_of_text
from memtrace_otel.graph import EvolutionGraph, VersionKey
from memtrace_otel.model import OperationSpan, Variable, ref_kind
from memtrace_otel.semconv import Action, OpKind, RefKind, Role

SOURCE_KINDS = frozenset({RefKind.MESSAGE, RefKind.DOCUMENT})
RECORD_KINDS = frozenset({RefKind.MEMORY, RefKind.CHUNK, RefKind.STATE})
READING_KINDS = frozenset({OpKind.RETRIEVE, OpKind.RERANK, OpKind.ASSEMBLE, OpKind.RESPOND, OpKind.JUDGE})

_STAMP = re.compile(r"^[^:\n]{0,60}\d{4}[^:\n]{0,20}[:\]]|[\[(][^\])\n]*\d{4}[^\])\n]*[\])]|^\S{0,3}\d{4}-\d\d-\d\d\S*")


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a variable: the span that produced it (or first read it, for a message), its content and its day."""

    ref: str
    span: OperationSpan
    content: str = ""
    day: date | None = None
    action: str = ""
    root: bool = False

    @property
    def deleted(self) -> bool:
        """A tombstone: the record ends here."""
        return self.action == Action.DELETE


@dataclass(frozen=True, slots=True)
class Source:
    """A message and everything taken from it in one scope."""

    message: Version
    extraction: OperationSpan
    """The operation answerable for what was taken from the message."""
    extracted: bool
    """The trace shows a separate extraction step."""
    facts: tuple[Version, ...]
    written: tuple[Version, ...]

    @property
    def scope(self) -> str:
        """Scope the message was given to."""
        return self.extraction.scope or self.message.span.scope


class Lineage:
    """Index of the spans of an evolution graph by the paths that information takes."""

    def __init__(self, graph: EvolutionGraph) -> None:
        self._graph = weakref.proxy(graph)  # the index must not keep its graph alive
        self.spans = sorted(graph.operations(), key=lambda s: (s.start, s.seq or 0, s.origin))
        self._by_origin = {span.origin: span for span in self.spans}
        self._children: dict[str, list[OperationSpan]] = defaultdict(list)
        self._readers: dict[tuple[str, str], list[OperationSpan]] = defaultdict(list)
        for span in self.spans:
            if span.parent_id:
                self._children[f"{span.trace_id}-{span.parent_id}"].append(span)
            for variable in span.inputs:
                self._readers[variable.ref, variable.origin].append(span)
        self._records: dict[str, dict[str, Version]] = defaultdict(dict)
        for span in self.spans:
            if span.kind not in READING_KINDS:
                for version in self._written_by(span):
                    self._records[version.ref][span.origin] = version

    def span(self, origin: str) -> OperationSpan | None:
        """Return the span of an origin, None when it is not in the graph."""
        return self._by_origin.get(origin)

    def subtree(self, span: OperationSpan) -> list[OperationSpan]:
        """Return the span and all spans below it, in time order of each level."""
        found, queue = {span.origin: span}, [span]
        while queue:
            for child in self._children[queue.pop(0).origin]:
                if child.origin not in found:
                    found[child.origin] = child
                    queue.append(child)
        return list(found.values())

    def ancestors(self, span: OperationSpan) -> list[OperationSpan]:
        """Return the parents of the span inside its trace, nearest first."""
        found: list[OperationSpan] = []
        parent = self.span(f"{span.trace_id}-{span.parent_id}")
        while parent is not None and parent not in found:
            found.append(parent)
            parent = self.span(f"{parent.trace_id}-{parent.parent_id}")
        return found

    def scope(self, span: OperationSpan) -> str:
        """Return the memory scope the span works in: its own or that of the nearest span above it."""
        return next((s.scope for s in (span, *self.ancestors(span)) if s.scope), "")

    def content(self, span: OperationSpan, variable: Variable) -> str:
        """Return the best known content of an input of `span`."""
        if variable.content:
            return variable.content
        return self._graph.content(VersionKey(variable.ref, variable.origin, "" if variable.origin else span.scope))

    def records(self) -> list[str]:
        """Return the refs of all stored records, in order of first writing."""
        return list(self._records)

    def history(self, ref: str, scope: str | None = None, until: int | None = None) -> list[Version]:
        """Return the versions of a record in causal order, those written in `scope` and before `until` (nanoseconds)."""
        known = self._records.get(ref, {})
        ordered = [known[key.origin] for key in self._graph.history(ref) if key.origin in known]
        ordered += [version for version in known.values() if version not in ordered]
        return [
            version
            for version in ordered
            if (scope is None or not version.span.scope or version.span.scope == scope)
            and (until is None or version.span.start <= until)
        ]

    @cached_property
    def sources(self) -> list[Source]:
        """Return every message (or document) given to memory, once per scope, in time order."""
        seen: dict[tuple[str, str], Source] = {}
        for span in self.spans:
            if span.kind in READING_KINDS:
                continue
            for index, variable in enumerate(span.inputs):
                given = (
                    variable.role in (Role.MESSAGE, Role.OTHER, Role.EVIDENCE)
                    and ref_kind(variable.ref) in SOURCE_KINDS
                )
                if given and (variable.ref, self.scope(span)) not in seen:
                    seen[variable.ref, self.scope(span)] = self._source(span, index)
        return list(seen.values())

    def _source(self, reader: OperationSpan, index: int) -> Source:
        variable = reader.inputs[index]
        content = self.content(reader, variable)
        message = Version(variable.ref, reader, content, _day(content, reader.start), root=True)
        top = next((a for a in reversed(self.ancestors(reader)) if a.kind == OpKind.INGEST), reader)
        family = self.subtree(top)
        readers = [s for s in family if any(v.ref == variable.ref and v.role != Role.HISTORY for v in s.inputs)] or [
            reader
        ]
        extraction = next((s for s in readers if s.kind in (OpKind.EXTRACT, OpKind.SEGMENT)), None)
        if extraction is None:  # an extraction that does not list what it read: the first below the ingest
            extraction = next((s for s in family if s.kind in (OpKind.EXTRACT, OpKind.SEGMENT)), None)
        facts = self._facts(extraction, variable.ref) if extraction else ()
        return Source(message, extraction or top, extraction is not None, facts, self._written(family, facts))

    def _facts(self, span: OperationSpan, ref: str) -> tuple[Version, ...]:
        index = next((i for i, v in enumerate(span.inputs) if v.ref == ref), None)
        fed = (
            {o for i, o in span.flow if i == index}
            if span.flow and index is not None
            else set(range(len(span.outputs)))
        )
        return tuple(
            self._version(span, output)
            for position, output in enumerate(span.outputs)
            if position in fed and ref_kind(output.ref) in (RefKind.FACT, RefKind.STATE, RefKind.CHUNK)
        )

    def _written(self, family: Iterable[OperationSpan], facts: tuple[Version, ...]) -> tuple[Version, ...]:
        """Record versions written by the family, and by spans elsewhere that read its facts."""
        spans = {span.origin: span for span in family}
        for fact in facts:
            for span in self._readers[fact.ref, fact.span.origin]:
                for below in self.subtree(span):
                    spans.setdefault(below.origin, below)
        own = {(fact.ref, fact.span.origin) for fact in facts}
        return tuple(
            version
            for span in spans.values()
            if span.kind not in READING_KINDS and _feeds(span, own)
            for version in self._written_by(span)
        )

    def _written_by(self, span: OperationSpan) -> list[Version]:
        """Record versions that this span wrote itself: what a span below it also lists is the lower one's work."""
        below = {v.ref for child in self.subtree(span)[1:] if child.kind not in READING_KINDS for v in child.outputs}
        return [
            self._version(span, output)
            for output in span.outputs
            if ref_kind(output.ref) in RECORD_KINDS and output.action != Action.NONE and output.ref not in below
        ]

    def _version(self, span: OperationSpan, output: Variable) -> Version:
        content = output.content or self._graph.content(VersionKey(output.ref, span.origin, ""))
        day = _event_day(output.event_time) or _day(content, span.start)
        return Version(output.ref, span, content, day, output.action)


_indexes: WeakKeyDictionary[EvolutionGraph, tuple[int, Lineage]] = WeakKeyDictionary()


def lineage_of(graph: EvolutionGraph) -> Lineage:
    """Return the index of a graph, built again only when the graph has grown."""
    size = graph.number_of_nodes() + graph.number_of_edges()
    known = _indexes.get(graph)
    if known is None or known[0] != size:
        known = _indexes[graph] = (size, Lineage(graph))
    return known[1]


def _feeds(span: OperationSpan, facts: set[tuple[str, str]]) -> bool:
    """A write that names the facts it used belongs to those facts only."""
    named = {(v.ref, v.origin) for v in span.inputs if ref_kind(v.ref) == RefKind.FACT}
    return not named or not facts or bool(named & facts)


def _day(content: str, start: int) -> date | None:
    stamp = _STAMP.search(content)
    return (day_of_text(stamp[0]) if stamp else None) or day_of(start)


def _event_day(event_time: str) -> date | None:
    try:
        return datetime.fromisoformat(event_time).date() if event_time else None
    except ValueError:
        return None
