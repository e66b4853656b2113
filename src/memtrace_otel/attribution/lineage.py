"""Index over a graph for the rules: enclosing operations, reads, and the versions of every record.

Identity only, no comparison of texts. Contents are there where they were captured.
"""

from __future__ import annotations

import re
import weakref
from collections import defaultdict, deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from memtrace_otel.attribution.dates import day_of, day_of_text
from memtrace_otel.graph import EvolutionGraph, OperationKey, VersionKey
from memtrace_otel.graph.keys import EdgeType
from memtrace_otel.model import OperationSpan, Variable, ref_kind, split_origin
from memtrace_otel.semconv import READING_KINDS, RECORD_OWNER, Action, Incomplete, OpKind, RefKind

SOURCE_KINDS = frozenset({RefKind.MESSAGE, RefKind.DOCUMENT})
RECORD_KINDS = frozenset({RefKind.MEMORY, RefKind.CHUNK, RefKind.STATE})
_HELD_KINDS = RECORD_KINDS | {RefKind.FACT}
_NO_GAP = frozenset({Incomplete.INFERRED, Incomplete.TRUNCATED, Incomplete.REDACTED})
_MISSING = ("missing",)
_LACKING = frozenset({Incomplete.LOST_SPANS, Incomplete.BOUNDED})

# A date that stands apart from the text: "1:56 pm on 8 May, 2023: ...", "[2023-05-08] ...", "(sent at ...)".
# Every repetition is bounded, and only the beginning is searched: contents are untrusted.
_STAMP = re.compile(
    r"^[^:\n]{0,60}\d{4}[^:\n]{0,20}[:\]]|[\[(][^\])\n]{0,60}\d{4}[^\])\n]{0,60}[\])]|^\S{0,3}\d{4}-\d\d-\d\d\S{0,60}"
    r"|^Today is [^\n]{0,40}?\d{4}"
)
_STAMP_WITHIN = 200


@dataclass(frozen=True, slots=True)
class Version:
    """One version of a variable: the span that produced it (a message: first read it), its content and its day."""

    key: VersionKey
    span: OperationSpan
    content: str = ""
    day: date | None = None
    action: str = ""
    digest: str = ""
    recorded: bool = True
    """False: known from readers and replacements only; `span` stands in for the operation that wrote the version."""

    @property
    def ref(self) -> str:
        """Ref of the variable."""
        return self.key.ref

    @property
    def origin(self) -> str:
        """Origin of the operation that wrote the version, '' when unknown."""
        return self.key.origin

    @property
    def deleted(self) -> bool:
        """Whether the version is a tombstone: the record ends here."""
        return self.action == Action.DELETE


@dataclass(frozen=True, slots=True)
class Loss:
    """`before` carried a piece of the answer, `after` (by an update or a deletion) does not."""

    before: Version
    after: Version


class Lineage:
    """Index of a graph by the flow of information."""

    def __init__(self, graph: EvolutionGraph) -> None:
        self._graph = weakref.proxy(graph)  # the index must not keep its graph alive
        self.spans: list[OperationSpan] = graph.operations()
        self._reads: dict[str, list[tuple[Variable, VersionKey]]] = {}
        self._written: dict[str, list[Version]] = {}
        self._ingestions: dict[str, OperationSpan | None] = {}
        self._readers: dict[tuple[str, str], list[OperationSpan]] = defaultdict(list)
        self._histories: dict[str, list[Version]] = {}
        self._names: dict[str, dict[VersionKey, str]] = {}
        self._records: dict[str, dict[VersionKey, Version]] = defaultdict(dict)
        self._by_digest: dict[tuple[str, str], list[Version]] = defaultdict(list)
        self.unwritten: list[tuple[OperationSpan, VersionKey]] = []
        """(reader, version read) of records and facts whose writing operation is missing."""
        for span in self.spans:
            for _, version in self.reads(span):
                self._readers[version.ref, version.origin].append(span)
                if ref_kind(version.ref) in _HELD_KINDS and self.is_missing(version.origin):
                    self.unwritten.append((span, version))
            for version in self.written_by(span):
                self._records[version.ref][version.key] = version
                if version.digest:
                    self._by_digest[self.scope(span), version.digest].append(version)

    # --- operations ----------------------------------------------------------------------------------------------
    def span(self, origin: str) -> OperationSpan | None:
        """Return the operation of an origin, None when the graph does not hold it."""
        return self._graph.operation(origin) if origin else None

    def is_missing(self, origin: str) -> bool:
        """Return whether an operation is named as an origin and is missing."""
        return bool(origin) and OperationKey(origin) in self._graph and self.span(origin) is None

    def judged(self, span: OperationSpan) -> OperationSpan | None:
        """Return the answering operation that an evaluation on this one is about; for a lost span its ids only."""
        origin = self._graph.judged(span.origin)
        known = self.span(origin)
        if known is not None or not origin:
            return known
        when = span.start
        return OperationSpan(*split_origin(origin), kind=OpKind.RESPOND, start=when, end=when, incomplete=_MISSING)

    def in_trace(self, trace_id: str) -> list[OperationSpan]:
        """Return the operations of a trace, in time order."""
        return self._graph.operations(trace_id=trace_id)

    @property
    def lost(self) -> bool:
        """Whether spans are known to be missing, or were not read."""
        return not _LACKING.isdisjoint(self._graph.incomplete)

    def scope(self, span: OperationSpan) -> str:
        """Return the memory scope of an operation: its own or that of the nearest enclosing operation."""
        return span.scope or self._graph.scope_of(span.origin)

    def owner(self, span: OperationSpan) -> tuple[str, str]:
        """Return the scope of a write and the owner that the metadata of its records names, '' for an unknown one."""
        return self.scope(span), str(span.attributes.get(RECORD_OWNER, ""))

    def gaps(self, span: OperationSpan) -> set[str]:
        """Return why an operation is incomplete; inferred origins, cut and redacted texts are no gap.

        An unknown origin of an input is a gap only for a stored record: `update(id, text)` writes text of the
        application. An unknown origin of the operation itself is a gap: the conversation before is unknown.
        """
        node = self._graph.nodes.get(OperationKey(span.origin))
        given: Iterable[str] = node["incomplete"] if node else span.incomplete
        reasons = {reason for reason in given if reason.partition(":")[0] not in _NO_GAP}
        unknown = {ref_kind(v.ref) for _, v in self.reads(span) if self._graph.nodes[v]["unknown"]}
        if unknown and unknown.isdisjoint(RECORD_KINDS):
            reasons.discard(Incomplete.UNKNOWN_ORIGIN)
        return reasons

    def subtree(self, span: OperationSpan) -> list[OperationSpan]:
        """Return the operation and all operations inside, nearest first."""
        found, queue = {span.origin: span}, deque([span])
        while queue:
            for child in self._graph.enclosed(queue.popleft().origin):
                if child.origin not in found:
                    found[child.origin] = child
                    queue.append(child)
        return list(found.values())

    def ancestors(self, span: OperationSpan) -> list[OperationSpan]:
        """Return the enclosing operations, nearest first."""
        found: list[OperationSpan] = []
        above = self._graph.enclosing(span.origin)
        while above is not None:
            found.append(above)
            above = self._graph.enclosing(above.origin)
        return found

    def ingestion(self, span: OperationSpan) -> OperationSpan:
        """Return the outermost enclosing ingestion, the operation itself without one."""
        passed: dict[str, OperationSpan] = {}
        above: OperationSpan | None = span
        while above is not None and above.origin not in self._ingestions:
            passed[above.origin] = above
            above = self._graph.enclosing(above.origin)
        top = self._ingestions[above.origin] if above is not None else None
        for origin, one in reversed(passed.items()):
            top = top or (one if one.kind == OpKind.INGEST else None)
            self._ingestions[origin] = top
        return self._ingestions[span.origin] or span

    # --- what was read -------------------------------------------------------------------------------------------
    def reads(self, span: OperationSpan) -> list[tuple[Variable, VersionKey]]:
        """Return the inputs of an operation with their versions; an origin that is not recorded is inferred."""
        if span.origin not in self._reads:
            versions = {read.index: read.version for read in self._graph.inputs(span.origin)}
            self._reads[span.origin] = [
                (variable, versions.get(index, VersionKey(variable.ref, variable.origin)))
                for index, variable in enumerate(span.inputs)
            ]
        return self._reads[span.origin]

    def readers(self, version: Version) -> list[OperationSpan]:
        """Return the operations that read a produced version."""
        return self._readers.get((version.ref, version.origin), [])

    def readers_of(self, version: VersionKey) -> list[OperationSpan]:
        """Return the operations that read a version, in time order; of a root, those of every scope."""
        return self._readers.get((version.ref, version.origin), [])

    def output_readers(self, span: OperationSpan) -> list[OperationSpan]:
        """Return the operations that read an output of an operation."""
        return [reader for output in span.outputs for reader in self._readers.get((output.ref, span.origin), ())]

    def content(self, variable: Variable, version: VersionKey) -> str:
        """Return the best known content of an input."""
        return variable.content or self._graph.content(version)

    # --- what was written ----------------------------------------------------------------------------------------
    def records(self) -> list[str]:
        """Return the refs of all stored records, in order of first writing."""
        return list(self._records)

    def history(self, ref: str, until: int | None = None) -> list[Version]:
        """Return the versions of a record in causal order, those written before `until` (nanoseconds) when given."""
        if ref not in self._histories:
            known = self._records.get(ref, {})
            held = (known.get(key) or self._replaced(key) for key in self._graph.history(ref) if known)
            self._histories[ref] = [version for version in held if version is not None]
        return [version for version in self._histories[ref] if until is None or version.span.start <= until]

    def histories(self, ref: str, until: int | None = None) -> list[list[Version]]:
        """Return the history of every record with a ref: equal ids in two memories are two records, unless a version in
        one memory replaced the version of the other."""
        found: list[list[Version]] = []
        by_version: dict[VersionKey, list[Version]] = {}
        by_scope: dict[str, list[Version]] = {}
        for version in self.history(ref, until):
            scope = self.scope(version.span)
            replaced = (by_version[old] for old in self.replaced(version) if old in by_version)
            own = next(replaced, by_scope.get(scope))
            if own is None and len(found) == 1 and (not scope or by_scope.keys() == {""}):
                own = found[0]  # a write without scope works on the only record
            if own is None:
                found.append(own := [])
            own.append(version)
            by_version[version.key] = own
            if scope or own[0] is version:
                by_scope.setdefault(scope, own)
        return found

    def _replaced(self, key: VersionKey) -> Version | None:
        """Return a version that nobody recorded writing (it is older than the tracing, say) and that a recorded write
        replaced, as its readers saw it; None when none of them tells what it said.

        One without an origin counts only as the first of its record: else it may be a recorded version that its reader
        shows in words of its own.
        """
        edges = self._graph.in_edges(key, data=True)
        newer = [self._records[key.ref].get(new) for new, _, edge in edges if edge["type"] == EdgeType.SUPERSEDES]
        replacing = [version for version in newer if version is not None]
        if not replacing or self.span(key.origin) is not None:
            return None
        when, scope = self._graph.time_of(key), self._graph.scope_of_version(key)
        if not key.origin and any(
            version.span.start < when and self.scope(version.span) in (scope, "")
            for version in self._records[key.ref].values()
        ):
            return None
        content = self._graph.content(key) or self._last_seen(key, replacing)
        if not content:
            return None
        ids = split_origin(key.origin) if key.origin else ("", "")
        writer = OperationSpan(*ids, scope=scope, start=when, end=when, incomplete=_MISSING)
        digest = self._graph.digest(key)
        return Version(key, writer, content, day_said(content), digest=digest, recorded=False)

    def _last_seen(self, key: VersionKey, replacing: Iterable[Version]) -> str:
        """Return what was last read of a version, that readers saw as several, before another one replaced it."""
        until = min(max(version.span.start, version.span.end) for version in replacing)
        spans = [span for span in self.readers_of(key) if span.start <= until]
        seen = [variable.content for span in spans for variable, read in self.reads(span) if read == key]
        return next((content for content in reversed(seen) if content), "")

    def record(self, version: VersionKey) -> str:
        """Return the name of the record that a version is of: its ref, or one of its own where equal ids in several
        memories mean several."""
        ref = version.ref
        if ref not in self._names:
            histories = self.histories(ref) if ref in self._records else []
            several = histories if len(histories) > 1 else []
            self._names[ref] = {v.key: f"{ref}|{n}" for n, history in enumerate(several) for v in history}
        return self._names[ref].get(version, ref)

    def replaces(self, new: Version, old: Version) -> bool:
        """Return whether a version of a record replaced another version."""
        return self._graph.has_edge(new.key, old.key, EdgeType.SUPERSEDES)

    def replaced(self, version: Version) -> list[VersionKey]:
        """Return the versions of its record that a version replaced."""
        edges = self._graph.out_edges(version.key, data=True)
        return [old for _, old, edge in edges if edge["type"] == EdgeType.SUPERSEDES]

    def written_by(self, span: OperationSpan) -> list[Version]:
        """Return the record versions that an operation wrote itself, not those it lists for an operation below it, nor
        those it failed to write."""
        if span.origin not in self._written:
            self._written[span.origin] = [
                self.output(span, output)
                for output in span.outputs
                if span.kind not in READING_KINDS
                and ref_kind(output.ref) in RECORD_KINDS
                and output.action != Action.NONE
                and (version := VersionKey(output.ref, span.origin)) in self._graph
                and not self._graph.has_failed(version)
            ]
        return self._written[span.origin]

    def same_words(self, version: Version) -> list[Version]:
        """Return the record versions of the same scope whose content has the digest of this version."""
        return self._by_digest.get((self.scope(version.span), version.digest), []) if version.digest else []

    def output(self, span: OperationSpan, output: Variable) -> Version:
        """Return an output of an operation as a version."""
        key = VersionKey(output.ref, span.origin)
        content = output.content or self._graph.content(key)
        day = event_day(output.event_time) or day_said(content) or day_of(span.start)
        return Version(key, span, content, day, output.action, output.digest)


_indexes: weakref.WeakKeyDictionary[EvolutionGraph, Lineage] = weakref.WeakKeyDictionary()


def lineage_of(graph: EvolutionGraph) -> Lineage:
    """Return the index of a graph, made on first use."""
    if graph not in _indexes:
        _indexes[graph] = Lineage(graph)
    return _indexes[graph]


def overwriting(history: Sequence[Version], written: set[VersionKey]) -> tuple[Version, Version] | None:
    """Return the last version of those written and the update after it that made another text of the record."""
    held = [i for i, v in enumerate(history) if v.key in written]
    if not held:
        return None
    last = history[held[-1]]
    later = (v for v in history[held[-1] + 1 :] if v.action == Action.UPDATE and v.digest != last.digest)
    return next(((last, after) for after in later if after.digest and last.digest), None)


def day_said(content: str) -> date | None:
    """Return the day that a text is stamped with, None without a stamp."""
    stamp = _STAMP.search(content[:_STAMP_WITHIN])
    return day_of_text(stamp[0]) if stamp else None


def without_stamp(content: str) -> str:
    """Return a text without the days that the text is stamped with."""
    return _STAMP.sub("", content)


def event_day(event_time: str) -> date | None:
    """Return the day of an RFC 3339 time, None of another text."""
    try:
        return datetime.fromisoformat(event_time).date() if event_time else None
    except ValueError:
        return None
