"""The recorded answers of a source, with their questions and the newest judgement on each."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

from memtrace_otel.attribution.lineage import Lineage, lineage_of
from memtrace_otel.graph import EvolutionGraph, build_graph
from memtrace_otel.graph.judgements import evaluations, given_answers
from memtrace_otel.model import OperationSpan, judged_traces, label_and_score
from memtrace_otel.semconv import EVALUATION_NAME, OpKind, RefKind, Role
from memtrace_otel.sources.protocols import TraceSource

_MOST_JUDGES = 20_000


@dataclass(frozen=True, slots=True)
class RecordedAnswer:
    """An answer: `judged_by` is the name of the newest evaluation, `label` its label or score; empty when unknown."""

    trace_id: str
    span_id: str
    question: str
    answer: str
    judged_by: str
    label: str


def recorded_answers(source: TraceSource) -> Iterator[RecordedAnswer]:
    """Yield every recorded answer to the user in order of its start; other model calls only if an evaluation is about
    the call. Raises SourceError when the source cannot answer."""
    yield from _described(source, source.spans(kinds=(OpKind.RESPOND,)))


def judged_answers(source: TraceSource, since: int, most: int) -> list[RecordedAnswer]:
    """Return the answers that the evaluations since `since` (ns) are about, in the `most` newest judged traces.

    Raises SourceError when the source cannot answer.
    """
    newest = list(islice(source.spans(kinds=(OpKind.JUDGE,), since=since), _MOST_JUDGES))
    traces = list(dict.fromkeys(trace for span in newest for trace in sorted(judged_traces(span))))[-most:]
    answers = [span for trace in traces for span in source.trace(trace) if span.kind == OpKind.RESPOND]
    return [answer for answer in _described(source, answers) if answer.judged_by]


def _described(source: TraceSource, answers: Iterable[OperationSpan]) -> Iterator[RecordedAnswer]:
    for answer in answers:
        if answer.part:
            continue
        judges = source.readers(answer.origin, kinds=(OpKind.JUDGE,))
        spans = {span.origin: span for span in (*source.trace(answer.trace_id), *judges)}
        graph = build_graph(spans.values())  # kept: the lineage refers to the graph weakly
        lineage = lineage_of(graph)
        judged_by, label = _judgement(lineage, answer)
        if not (judged_by or answer.origin in _given(graph, answer.trace_id)):
            continue
        yield RecordedAnswer(
            trace_id=answer.trace_id,
            span_id=answer.span_id,
            question=_content(lineage, answer, Role.QUERY),
            answer=next((v.content for v in answer.outputs if v.ref.startswith(f"{RefKind.ANSWER}:")), ""),
            judged_by=judged_by,
            label=label,
        )


def _given(graph: EvolutionGraph, trace_id: str) -> set[str]:
    """Return the origins of the answers of a trace to the user."""

    def around(origin: str) -> Iterator[OperationSpan]:
        while outer := graph.enclosing(origin):
            yield outer
            origin = outer.origin

    return {one.origin for one in given_answers(graph.operations(OpKind.RESPOND, trace_id=trace_id), around)}


def _content(lineage: Lineage, span: OperationSpan, role: Role) -> str:
    contents = (lineage.content(variable, key) for variable, key in lineage.reads(span) if variable.role == role)
    return next((content for content in contents if content), "")


def _judgement(lineage: Lineage, answer: OperationSpan) -> tuple[str, str]:
    """Return name and label (else score) of the newest evaluation of an answer."""
    found: list[tuple[int, str, str]] = []
    for span in lineage.spans:
        for attributes, time in evaluations(span):
            judged = lineage.judged(span)
            label, score = label_and_score(attributes)
            if judged is not None and judged.origin == answer.origin and (label or score is not None):
                name = str(attributes.get(EVALUATION_NAME, "")) or span.name
                found.append((time, name, label or f"{score:g}"))
    return max(found, default=(0, "", ""))[1:]
