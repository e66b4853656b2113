"""The answering side of a fact: question, searches, answer, judgement."""

from __future__ import annotations

from memtrace_otel.attribution.lineage import Lineage
from memtrace_otel.attribution.search_results import SearchResults
from memtrace_otel.graph import VersionKey
from memtrace_otel.model import Failure, OperationSpan, Variable, Verdict
from memtrace_otel.model.printable import one_line
from memtrace_otel.report.evolution import Draft, FlowKind, Moment, Stage, content_or_note
from memtrace_otel.report.summary import process_of
from memtrace_otel.report.text import Mark, Paragraph, Run
from memtrace_otel.semconv import FailureType, Role

MAX_HITS = 3
MAX_SEARCHES = 3

QUESTION, ANSWER, JUDGEMENT = "question", "answer", "judgement"
"""Keys of the moments that every evolution has."""


def judgement(failure: Failure) -> str:
    """Return the label of a judgement, its score when it has none, '' without either."""
    score = f"{failure.score:g}" if failure.score is not None else ""
    return one_line(failure.label, 24) or score


class Answering:
    """Draws what happened from the question to its judgement, and which records were read on the way."""

    def __init__(self, draft: Draft, lineage: Lineage, verdict: Verdict, results: SearchResults) -> None:
        self._draft = draft
        self._lineage = lineage
        self._verdict = verdict
        self._results = results
        self._searches = results.searches[-MAX_SEARCHES:]

    def draw(self) -> None:
        """Draw the moments in order, then the flows from the records that are drawn already."""
        span = self._verdict.failure.answer_span
        # A program without a span around a turn searches in a trace of its own: the question came up there.
        first = min((s for s in (*self._searches, span) if s.start), key=lambda s: s.start, default=span)
        began = first.start
        asked = (content_or_note(self._verdict.failure.question),)
        self._moment(QUESTION, Stage.QUESTION, "question", asked, first, began)
        feeding = QUESTION
        for search in self._searches:
            key = self._moment(
                search.origin, Stage.SEARCH, one_line(search.name), self._hits(search), search, search.start
            )
            chained = any(v.origin == earlier.origin for v in search.inputs for earlier in self._searches)
            self._draft.flow(feeding if chained else QUESTION, key)
            feeding = key
        content = (content_or_note(self._verdict.failure.answer),)
        self._moment(ANSWER, Stage.ANSWER, one_line(span.name) or "answer", content, span, max(span.start, began))
        self._draft.flow(QUESTION, ANSWER)
        consumed = {f.source for f in self._draft.flows.values()}
        for search in self._searches:
            if search.origin not in consumed:
                self._draft.flow(search.origin, ANSWER)
        self._judgement()
        self._reads()

    def _judgement(self) -> None:
        failure = self._verdict.failure
        judge = failure.judge_span or failure.answer_span
        expected: Paragraph = (Run("expected", Mark.NOTE), *content_or_note(failure.expected))
        self._moment(
            JUDGEMENT,
            Stage.JUDGEMENT,
            f"judged {judgement(failure)}".strip(),
            (expected,),
            judge,
            max(judge.end, failure.answer_span.start),
        )
        self._draft.flow(ANSWER, JUDGEMENT)

    def _hits(self, search: OperationSpan) -> tuple[Paragraph, ...]:
        hits = self._returned(search)
        story = [(rank, hit) for rank, hit in enumerate(hits, 1) if hit[0].ref in self._draft.records]
        rest = [(rank, hit) for rank, hit in enumerate(hits, 1) if hit[0].ref not in self._draft.records]
        shown = sorted([*story, *rest][:MAX_HITS], key=lambda item: item[0])
        lines: list[Paragraph] = [self._hit(rank, *hit, alone=len(hits) == 1) for rank, hit in shown]
        if len(hits) > len(shown):
            lines.append((Run(f"and {len(hits) - len(shown)} more", Mark.NOTE),))
        return tuple(lines) or ((Run("returned nothing", Mark.NOTE),),)

    def _returned(self, search: OperationSpan) -> list[tuple[Variable, VersionKey]]:
        reads = self._lineage.reads(search)
        return [r for r in reads if r[0].role == Role.HIT] or [r for r in reads if r[0].role == Role.CANDIDATE]

    def _hit(self, rank: int, variable: Variable, version: VersionKey, *, alone: bool) -> Paragraph:
        content = self._lineage.content(variable, version) or one_line(variable.ref, 30)
        mark = Mark.KEPT if variable.ref in self._draft.records and not alone else Mark.PLAIN
        return (Run(f"{rank}.", Mark.NOTE), Run(content, mark))

    def _reads(self) -> None:
        """Join each record to the search that returned it, or show that none did."""
        for row, ref in enumerate(self._draft.records):
            versions = [m for m in self._draft.moments.values() if m.stage is Stage.RECORD and m.row == row]
            found = next(((s, key) for s in self._searches for v, key in self._returned(s) if v.ref == ref), None)
            if found is not None:
                search, key = found
                version = next((m for m in versions if m.origin == key.origin), versions[-1])
                self._draft.flow(version.key, search.origin, FlowKind.READ)
            elif any(v.ref == ref for v in self._verdict.failure.answer_span.inputs):
                self._draft.flow(versions[-1].key, ANSWER, FlowKind.READ)
            elif not versions[-1].tombstone and self._verdict.failure_type in (
                FailureType.RETRIEVAL,
                FailureType.UPDATE,
            ):
                target = self._searches[-1].origin if self._searches else ANSWER
                self._draft.flow(versions[-1].key, target, FlowKind.MISSED, "not returned")

    def _moment(
        self, key: str, stage: Stage, title: str, paragraphs: tuple[Paragraph, ...], span: OperationSpan, time: int
    ) -> str:
        own = "" if stage is Stage.QUESTION else span.origin
        return self._draft.add(Moment(key, stage, title, paragraphs, time, span.trace_id, own, process_of(span)))
