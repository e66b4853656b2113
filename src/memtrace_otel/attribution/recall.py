"""What the answering model was given: the searches made for a question, their hits, and what reached the model."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import date

from memtrace_otel.attribution.dates import day_of, day_of_text
from memtrace_otel.attribution.lineage import READING_KINDS, RECORD_KINDS, SOURCE_KINDS, Lineage
from memtrace_otel.model import OperationSpan, Variable, ref_kind
from memtrace_otel.semconv import OpKind, RefKind, Role

_SEARCHES = frozenset({OpKind.RETRIEVE, OpKind.RERANK, OpKind.ASSEMBLE})


@dataclass(frozen=True, slots=True)
class Hit:
    """A record version that an operation returned for the question. `rank` counts from 1 in that operation's list."""

    ref: str
    origin: str
    content: str
    day: date | None
    rank: int
    score: float | None
    reader: OperationSpan


@dataclass(frozen=True, slots=True)
class Recall:
    """Reading side of one answer."""

    searches: tuple[OperationSpan, ...]
    hits: tuple[Hit, ...]
    """What reached the answering model."""
    dropped: tuple[Hit, ...]
    """Returned by a search, gone before the model saw it."""
    ranked_out: tuple[Hit, ...]
    """Candidates a search looked at and did not return."""
    linked: bool
    """The trace says which search fed the answer; False when it was taken from the same trace only."""

    @property
    def scopes(self) -> tuple[str, ...]:
        """Scopes searched, in order."""
        return tuple(dict.fromkeys(span.scope for span in self.searches if span.scope))


def recall(lineage: Lineage, answer: OperationSpan) -> Recall:
    """Follow the inputs of the answering span back to the searches and records they came from."""
    feeding = _feeding(lineage, answer)
    linked = bool(feeding) or any(ref_kind(v.ref) in RECORD_KINDS for v in answer.inputs)
    beside = [s for s in _beside(lineage, answer) if s not in feeding]
    context = _context_lines(lineage, [answer, *feeding, *beside])
    direct = _hits(lineage, answer, context)
    if not linked:
        feeding, beside = beside, []
    searches = sorted({s.origin: s for s in (*feeding, *beside)}.values(), key=lambda s: (s.start, s.origin))
    returned = [hit for span in (feeding or beside) for hit in _hits(lineage, span, context)]
    hits = direct or _last_step(feeding, returned)
    reached = {(hit.ref, hit.origin) for hit in hits} | {hit.ref for hit in hits}
    dropped = [hit for span in searches for hit in _hits(lineage, span, context) if hit.ref not in reached]
    candidates = [
        hit for span in searches for hit in _hits(lineage, span, context, Role.CANDIDATE) if hit.ref not in reached
    ]
    return Recall(tuple(searches), tuple(hits), tuple(dropped), tuple(candidates), linked)


def _feeding(lineage: Lineage, answer: OperationSpan) -> list[OperationSpan]:
    """Searches whose outputs, over any number of steps, the answering span read."""
    found: list[OperationSpan] = []
    queue = [answer]
    while queue:
        for variable in queue.pop(0).inputs:
            span = lineage.span(variable.origin)
            if span is not None and span.kind in _SEARCHES and span not in found:
                found.append(span)
                queue.append(span)
    return found


def _beside(lineage: Lineage, answer: OperationSpan) -> list[OperationSpan]:
    """Searches of the same trace for the same query, made before the answer was done."""
    asked = {v.ref for v in answer.inputs if v.role == Role.QUERY}
    same_trace = [
        s
        for s in lineage.spans
        if s.trace_id == answer.trace_id and s.kind in _SEARCHES and s.start <= (answer.end or s.start)
    ]
    same_query = [s for s in same_trace if asked & {v.ref for v in s.inputs if v.role == Role.QUERY}]
    if same_query:
        return same_query
    others = [
        s
        for s in lineage.spans
        if s.trace_id == answer.trace_id and s.kind == OpKind.RESPOND and s.start < answer.start
    ]
    since = max((s.end for s in others), default=0)
    return [s for s in same_trace if s.start >= since or answer in lineage.ancestors(s)]


def _last_step(feeding: list[OperationSpan], returned: list[Hit]) -> list[Hit]:
    """Of a chain retrieve -> rerank -> assemble, the list of the last step counts."""
    consumed = {v.origin for span in feeding for v in span.inputs if v.origin}
    last = {span.origin for span in feeding if span.origin not in consumed}
    kept = [hit for hit in returned if hit.reader.origin in last]
    return kept or returned


def _hits(lineage: Lineage, span: OperationSpan, context: list[str], role: Role = Role.HIT) -> list[Hit]:
    wanted = {role, Role.CONTEXT, Role.OTHER} if span.kind not in _SEARCHES else {role}
    found: list[Hit] = []
    for variable in span.inputs:
        kind = ref_kind(variable.ref)
        if variable.role in wanted and (kind in RECORD_KINDS or kind in SOURCE_KINDS):
            content = lineage.content(span, variable)
            day = _day(lineage, variable, content, context)
            found.append(Hit(variable.ref, variable.origin, content, day, len(found) + 1, variable.score, span))
    return found


def _context_lines(lineage: Lineage, spans: list[OperationSpan]) -> list[str]:
    """Lines of the assembled contexts; each may carry the date of a record."""
    texts = [o.content for span in spans for o in span.outputs if ref_kind(o.ref) == RefKind.CONTEXT]
    texts += [lineage.content(span, v) for span in spans for v in span.inputs if ref_kind(v.ref) == RefKind.CONTEXT]
    return list(dict.fromkeys(line for text in texts for line in text.splitlines()))


def _day(lineage: Lineage, variable: Variable, content: str, context: list[str]) -> date | None:
    """Day of a record: from its writer, else from the context line that shows it."""
    writer = lineage.span(variable.origin)
    if writer is not None and writer.kind not in READING_KINDS:
        version = next((v for v in lineage.history(variable.ref) if v.span.origin == writer.origin), None)
        return version.day if version else day_of(writer.start)
    if not content:
        return None
    line = next((line for line in context if content in line), "")
    return day_of_text(line.replace(content, ""))
