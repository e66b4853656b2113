"""The searches made for a question, their hits, and the hits that reached the answering model.

A search that returned a hit does not show that the model had the hit: where the prompt or the context of the answer is
recorded, its text decides.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import date

from memtrace_otel.attribution.dates import day_of_text
from memtrace_otel.attribution.lineage import RECORD_KINDS, SOURCE_KINDS, Lineage, Version, day_said
from memtrace_otel.attribution.text import terms
from memtrace_otel.graph import VersionKey
from memtrace_otel.model import OperationSpan, ref_kind
from memtrace_otel.semconv import Incomplete, OpKind, RefKind, Role

_SEARCHES = frozenset({OpKind.RETRIEVE, OpKind.RERANK, OpKind.ASSEMBLE})
_WRITING = frozenset(
    {OpKind.INGEST, OpKind.EXTRACT, OpKind.DECIDE, OpKind.CONSOLIDATE, OpKind.CREATE, OpKind.UPDATE, OpKind.DELETE}
)
_SHOWN = frozenset({Role.HIT, Role.CONTEXT, Role.MESSAGE, Role.HISTORY, Role.OTHER})
_AROUND_QUESTION = _SHOWN | {Role.PROMPT}


@dataclass(frozen=True, slots=True)
class Hit:
    """A record version (or message) that an operation received for the question. `rank` counts from 1."""

    ref: str
    origin: str
    """Writer of the version, '' when unknown."""
    record: str
    """Name of the record, see `Lineage.record`."""
    content: str
    day: date | None
    rank: int
    reader: OperationSpan


@dataclass(frozen=True, slots=True)
class SearchResults:
    """The searches for one answer and their hits."""

    searches: tuple[OperationSpan, ...]
    hits: tuple[Hit, ...]
    """Hits that reached the answering model."""
    dropped: tuple[Hit, ...]
    """Hits of a search that did not reach the model."""
    ranked_out: tuple[Hit, ...]
    """Candidates that a search read and did not return."""
    linked: bool
    """The trace links the answer to its searches; False when the searches were only found in the same trace."""
    scopes: tuple[str, ...]
    """Scopes searched, in order."""
    asked_at: int
    """When memory was last searched for the answer (ns); the start of the answer without a search."""


def search_results(lineage: Lineage, answer: OperationSpan) -> SearchResults:
    """Follow the inputs of the answering operation back to the searches and records they came from."""
    feeding = _feeding(lineage, answer)
    beside = [span for span in _beside(lineage, answer) if span not in feeding]
    given = None if feeding else _prompt(lineage, answer)
    if given is not None:  # without a prompt nothing tells whether another trace's search is for this answer
        beside = beside or _for_same_question(lineage, answer)
    context = _context_lines(lineage, [answer, *feeding, *beside])
    shown = _hits(lineage, answer, _SHOWN, context)
    records = [hit for hit in shown if ref_kind(hit.ref) in RECORD_KINDS]
    searches = sorted((*feeding, *beside), key=lambda span: (span.start, span.origin))
    returned = [hit for span in searches for hit in _hits(lineage, span, {Role.HIT}, context)]
    if records:
        hits = shown
    else:
        last = _last_list(lineage, feeding or beside, returned)
        hits = [*(_in_context(hit) for hit in last if _quotes(given, hit)), *shown]
    reached = {hit.record for hit in hits}
    looked_up = [span for span in feeding if span.kind == OpKind.RETRIEVE] or feeding
    looked_at = [hit for span in searches for hit in _hits(lineage, span, {Role.CANDIDATE}, context)]
    return SearchResults(
        searches=tuple(searches),
        hits=tuple(hits),
        dropped=tuple(hit for hit in returned if hit.record not in reached),
        ranked_out=tuple(hit for hit in looked_at if hit.record not in reached),
        linked=bool(feeding or records or not searches),
        scopes=tuple(dict.fromkeys(scope for span in searches if (scope := lineage.scope(span)))),
        asked_at=max((span.start for span in looked_up), default=answer.start),
    )


def _feeding(lineage: Lineage, answer: OperationSpan) -> list[OperationSpan]:
    """Searches whose outputs, over any number of steps, the answering operation read, and the re-rankings of these."""
    found: list[OperationSpan] = []
    queue = [answer]
    while queue:
        for _, version in lineage.reads(queue.pop(0)):
            span = lineage.span(version.origin)
            if span is not None and span.kind in _SEARCHES and span not in found:
                found.append(span)
                queue.append(span)
    reranks = (reader for span in found for reader in lineage.output_readers(span) if reader.kind == OpKind.RERANK)
    later = {span.origin: span for span in reranks if span not in found and span.end <= answer.start}
    return [*found, *later.values()]


def _beside(lineage: Lineage, answer: OperationSpan) -> list[OperationSpan]:
    """Searches of the same trace for the same query, else all since the answer before, begun before this one ended.

    What a write looks up for itself (neighbours of a new fact) is not searched for the answer, and the steps of a
    search are not searches of their own.
    """
    in_trace = lineage.in_trace(answer.trace_id)
    searches = [
        span
        for span in in_trace
        if span.kind in _SEARCHES
        and span.start <= max(answer.start, answer.end)
        and not any(above.kind in _WRITING or above.kind in _SEARCHES for above in lineage.ancestors(span))
    ]
    asked = _queries(answer)
    same_query = [span for span in searches if asked & _queries(span)]
    if same_query:
        return same_query
    since = max((s.end for s in in_trace if s.kind == OpKind.RESPOND and s.end <= answer.start), default=0)
    return [span for span in searches if span.start >= since]


def _for_same_question(lineage: Lineage, answer: OperationSpan) -> list[OperationSpan]:
    """The last search for the same question in another trace that no answer read, none when several memories have one.

    A program without a span around the turn has the search and the answer in two traces.
    """
    asked = _queries(answer)
    searches = [
        span
        for span in lineage.spans
        if span.kind in _SEARCHES and span.end <= answer.start and asked & _queries(span) and span.parent_id == ""
    ]
    free = [span for span in searches if not any(r.kind == OpKind.RESPOND for r in lineage.output_readers(span))]
    return free[-1:] if len({lineage.scope(span) for span in free}) == 1 else []


def _prompt(lineage: Lineage, answer: OperationSpan) -> str | None:
    """Return what the model was given as text, None when only the question is recorded."""
    given = [(variable.role, lineage.content(variable, key)) for variable, key in lineage.reads(answer)]
    recorded = any(role in _AROUND_QUESTION and content for role, content in given)
    return "\n".join(content for _, content in given) if recorded else None


def _quotes(given: str | None, hit: Hit) -> bool:
    """Return whether a prompt may hold the words of a hit."""
    return given is None or not hit.content or terms(hit.content) <= terms(given)


def _in_context(hit: Hit) -> Hit:
    """Return the hit with the lines that the context of its search holds: a window leaves out a part of a record."""
    context = "\n".join(o.content for o in hit.reader.outputs if ref_kind(o.ref) == RefKind.CONTEXT)
    if hit.content in context or Incomplete.TRUNCATED in hit.reader.incomplete:
        return hit
    kept = [line for line in hit.content.splitlines() if line.strip() and line in context]
    return replace(hit, content="\n".join(kept)) if kept else hit


def _queries(span: OperationSpan) -> set[str]:
    return {variable.ref for variable in span.inputs if variable.role == Role.QUERY}


def _last_list(lineage: Lineage, feeding: list[OperationSpan], returned: list[Hit]) -> list[Hit]:
    """Return the hits of the last list in a chain retrieve -> rerank -> assemble."""
    consumed = {version.origin for span in feeding for _, version in lineage.reads(span)}
    last = [span for span in feeding if span.origin not in consumed]
    kept = [hit for hit in returned if hit.reader in last]
    return kept or ([] if any(_considers(span) for span in last) else returned)


def _considers(span: OperationSpan) -> bool:
    """Whether a step names the records that it chose from: without a hit, the step dropped all of them."""
    return any(v.role == Role.CANDIDATE and ref_kind(v.ref) in RECORD_KINDS for v in span.inputs)


def _hits(lineage: Lineage, span: OperationSpan, roles: Iterable[str], context: list[str]) -> list[Hit]:
    found: list[Hit] = []
    for variable, read in lineage.reads(span):
        kind = ref_kind(variable.ref)
        if variable.role not in roles or not (kind in RECORD_KINDS or kind in SOURCE_KINDS):
            continue
        version = _version(lineage, span, read)
        content = lineage.content(variable, read) or (version.content if version else "")
        day = (version.day if version else day_said(content)) or _day_shown(content, context)
        writer = version.origin if version and version.recorded else ""
        record = lineage.record(version.key if version else read)
        found.append(Hit(variable.ref, writer, record, content, day, len(found) + 1, span))
    return found


def _version(lineage: Lineage, reader: OperationSpan, read: VersionKey) -> Version | None:
    """Return the version that was read. Without an origin: the last version of the record in the memory that was read.
    The version of a missing operation is unknown."""
    histories = lineage.histories(read.ref, until=reader.start)
    if read.origin:
        known = next((v for history in histories for v in reversed(history) if v.key == read), None)
        if known is not None or lineage.is_missing(read.origin):
            return known
    scope = lineage.scope(reader) if len(histories) > 1 else ""
    own = [h for h in histories if not scope or any(lineage.scope(v.span) in (scope, "") for v in h)]
    return max((history[-1] for history in own), key=lambda version: version.span.start, default=None)


def _context_lines(lineage: Lineage, spans: list[OperationSpan]) -> list[str]:
    """Lines of the assembled contexts; each may carry the date of a record."""
    texts = [o.content for span in spans for o in span.outputs if ref_kind(o.ref) == RefKind.CONTEXT]
    texts += [
        lineage.content(v, key) for s in spans for v, key in lineage.reads(s) if ref_kind(v.ref) == RefKind.CONTEXT
    ]
    return list(dict.fromkeys(line for text in texts for line in text.splitlines()))


def _day_shown(content: str, context: list[str]) -> date | None:
    """Return the day in the context line of a record."""
    line = next((line for line in context if content and content in line), "")
    return day_of_text(line.replace(content, ""))
