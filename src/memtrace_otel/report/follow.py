"""Follow one fact through the graph: message, extraction, record versions, search, answer, judgement."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace

from memtrace_otel.attribution.lineage import RECORD_KINDS, lineage_of
from memtrace_otel.attribution.search_results import SearchResults, search_results
from memtrace_otel.attribution.source_messages import Source, sources_of
from memtrace_otel.attribution.text import terms
from memtrace_otel.graph import EvolutionGraph, VersionKey
from memtrace_otel.model import Verdict, make_origin, ref_kind
from memtrace_otel.model.printable import one_line
from memtrace_otel.report.answering import ANSWER, JUDGEMENT, Answering
from memtrace_otel.report.evolution import UNRECORDED, Draft, Evolution, Moment, Stage
from memtrace_otel.report.text import Mark, Run
from memtrace_otel.report.wording import flag
from memtrace_otel.report.writing import Writing
from memtrace_otel.semconv import READING_KINDS, FailureType, OpKind

MAX_RECORDS = 3

_STAGE_OF_TYPE = {
    FailureType.EXTRACTION: Stage.PROCESSING,
    FailureType.UPDATE: Stage.RECORD,
    FailureType.DELETION: Stage.RECORD,
    FailureType.RETRIEVAL: Stage.SEARCH,
    FailureType.RESPONSE: Stage.ANSWER,
    FailureType.JUDGE: Stage.JUDGEMENT,
    FailureType.ANNOTATION: Stage.JUDGEMENT,
}


class Follower:
    """Follows the facts of many verdicts through one graph."""

    def __init__(self, graph: EvolutionGraph) -> None:
        self._lineage = lineage_of(graph)
        self._by_message: dict[str, list[Source]] = defaultdict(list)
        self._by_version: dict[VersionKey, list[Source]] = defaultdict(list)
        for source in sources_of(self._lineage):
            self._by_message[source.message.ref].append(source)
            for version in source.written:
                self._by_version[version.key].append(source)

    def follow(self, verdict: Verdict) -> Evolution:
        """Return the evolution of the fact that a verdict is about, up to the failed answer and its judgement."""
        draft = Draft()
        answer = verdict.failure.answer_span
        seen = search_results(self._lineage, answer)
        decisive = make_origin(verdict.trace_id, verdict.span_id) if verdict.span_id else ""
        told = self._told(verdict)
        writing = Writing(draft, self._lineage, frozenset((s.ref, s.origin) for s in verdict.evidence), decisive)
        for source in told:
            writing.message(source)
        for ref in self._records(verdict, told, seen):
            writing.record(ref, answer.end or answer.start, self._by_version)
        Answering(draft, self._lineage, verdict, seen).draw()
        self._draw_decisive(draft, writing, verdict, decisive)
        return draft.finish()

    def _told(self, verdict: Verdict) -> list[Source]:
        """The messages that the evidence names, once each."""
        told: dict[str, Source] = {}
        for step in verdict.evidence:
            found = self._by_message.get(step.ref, []) if step.ref not in told else []
            exact = [s for s in found if step.origin in (s.message.span.origin, s.extraction.origin)]
            for source in (exact or found)[:1]:
                told[step.ref] = source
        return list(told.values())

    def _records(self, verdict: Verdict, told: list[Source], seen: SearchResults) -> list[str]:
        """Refs of the records to draw: those the verdict names, else what came of the message or gave the answer."""
        refs = [r for r in (verdict.variable, *(s.ref for s in verdict.evidence)) if ref_kind(r) in RECORD_KINDS]
        span = self._lineage.span(make_origin(verdict.trace_id, verdict.span_id))
        if span is not None and span.kind not in READING_KINDS:
            refs += [v.ref for v in span.outputs if ref_kind(v.ref) in RECORD_KINDS]
        refs = refs or [v.ref for source in told for v in source.written]
        if not refs and seen.hits:
            wanted = terms(f"{verdict.failure.expected} {verdict.failure.answer}")
            best = max(seen.hits, key=lambda hit: len(wanted & terms(hit.content)))
            refs = [best.ref] if wanted & terms(best.content) or not best.content else []
        return list(dict.fromkeys(refs))[:MAX_RECORDS]

    def _draw_decisive(self, draft: Draft, writing: Writing, verdict: Verdict, decisive: str) -> None:
        """Flag the moment where it went wrong; draw it first when the path does not hold it."""
        key = _decisive_key(draft, verdict, decisive)
        span = self._lineage.span(decisive)
        if key is None and span is not None and span.kind not in READING_KINDS:
            writing.step(span)
            key = span.origin
        if key is None and (decisive or verdict.failure_type == FailureType.EXTRACTION):
            key = draft.add(_unrecorded(verdict, decisive))
        if key is None:
            return
        role = verdict.evidence[-1].role if verdict.evidence else ""
        moment = replace(draft.moments[key], flag=flag(verdict.failure_type, role))
        draft.moments[key] = _with_loss(moment, verdict)


def _decisive_key(draft: Draft, verdict: Verdict, decisive: str) -> str | None:
    stage = _STAGE_OF_TYPE.get(FailureType(verdict.failure_type)) if verdict.failure_type in list(FailureType) else None
    if stage is Stage.JUDGEMENT:
        return JUDGEMENT
    there = [m for m in draft.moments.values() if decisive and m.origin == decisive and m.stage is not Stage.MESSAGE]
    if not there and decisive == verdict.failure.answer_span.origin:
        return ANSWER
    if not decisive and verdict.evidence:  # a write that nobody recorded: where it is drawn
        written = f"{verdict.evidence[-1].ref}@{verdict.evidence[-1].origin}"
        return written if written in draft.moments else None
    last = verdict.evidence[-1].ref if verdict.evidence else verdict.variable
    there.sort(key=lambda m: (m.stage is not stage, not m.key.startswith(f"{last}@")))
    return there[0].key if there else None


def _unrecorded(verdict: Verdict, decisive: str) -> Moment:
    note = "this step is not in the recorded spans"
    stage = Stage.SEARCH if verdict.operation_kind == OpKind.RETRIEVE else Stage.PROCESSING
    title = one_line(verdict.operation) or "not recorded"
    trace_id = verdict.trace_id or UNRECORDED
    return Moment(UNRECORDED, stage, title, ((Run(note, Mark.NOTE),),), verdict.when, trace_id, decisive, ghost=True)


def _with_loss(moment: Moment, verdict: Verdict) -> Moment:
    """Show on the decisive moment what did not come through, where its own text cannot show it."""
    failure_type = verdict.failure_type
    if failure_type == FailureType.EXTRACTION and verdict.failure.expected:
        return replace(moment, paragraphs=(*moment.paragraphs, (Run(verdict.failure.expected, Mark.LOST),)))
    if failure_type == FailureType.RETRIEVAL:
        missed = next((s.note for s in reversed(verdict.evidence) if s.note and ref_kind(s.ref) in RECORD_KINDS), "")
        if missed:
            return replace(moment, paragraphs=(*moment.paragraphs, (Run(missed, Mark.LOST),)))
    return moment
