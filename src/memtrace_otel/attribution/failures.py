"""Find failed answers in a graph: evaluations on judge spans and span events, joined to the answers they judge."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce

from memtrace_otel import settings
from memtrace_otel.attribution.lineage import Lineage, lineage_of
from memtrace_otel.graph import EvolutionGraph
from memtrace_otel.graph.judgements import evaluations
from memtrace_otel.model import Failure, OperationSpan, content_digest, is_failing, label_and_score
from memtrace_otel.semconv import (
    EVALUATION_EXPLANATION,
    EVALUATION_NAME,
    GEN_AI_MEMORY_QUERY_TEXT,
    OpKind,
    RefKind,
    Role,
)


@dataclass(frozen=True, slots=True)
class _Evaluation:
    answer: OperationSpan
    judges: tuple[OperationSpan, ...]
    """The first judge gives the expected answer, if any does; empty for an event on another span."""
    name: str
    label: str
    score: float | None
    explanation: str
    time: int

    @property
    def failing(self) -> bool:
        return bool(is_failing(self.label, self.score, settings.EVALUATION_THRESHOLD.read()))

    @property
    def expects(self) -> bool:
        """Whether the evaluation gives the expected answer, if only by a digest."""
        return any(variable.role == Role.EXPECTED for judge in self.judges[:1] for variable in judge.inputs)


def find_failures(graph: EvolutionGraph, trace_id: str | None = None, *, passing: bool = False) -> list[Failure]:
    """Return one failure per failed answer, in time order; only answers given in `trace_id` when it is named.
    With `passing`, judged answers that did not fail are described, too.

    The latest evaluation of each name decides; an answer fails when any name does. Of several failing evaluations, the
    last one with an expected answer describes the failure, without one the first judge. Our own verdicts are no
    evaluations.
    """
    lineage = lineage_of(graph)
    said: defaultdict[tuple[str, str], list[_Evaluation]] = defaultdict(list)
    for span in lineage.spans:
        for evaluation in _evaluations(lineage, span):
            said[evaluation.answer.origin, evaluation.name].append(evaluation)
    judged: defaultdict[str, list[_Evaluation]] = defaultdict(list)
    for several in said.values():
        evaluation = reduce(_after, sorted(several, key=lambda one: one.time))
        if trace_id in (None, evaluation.answer.trace_id):
            judged[evaluation.answer.origin].append(evaluation)
    failing = ([one for one in several if one.failing] or several * passing for several in judged.values())
    found = [_failure(lineage, several) for several in failing if several]
    return sorted(found, key=lambda failure: failure.time_order)


def expected_known(failure: Failure) -> bool:
    """Return whether the expected answer was captured.

    An expected answer with no content and no digest is an empty one; with a digest it was not captured.
    """
    judge = failure.judge_span
    empty = judge is not None and any(
        v.role == Role.EXPECTED and v.digest in ("", content_digest("")) for v in judge.inputs
    )
    return bool(failure.expected) or (empty and bool(failure.answer))


def _evaluations(lineage: Lineage, span: OperationSpan) -> Iterator[_Evaluation]:
    for attributes, time in evaluations(span):
        (label, score), name = label_and_score(attributes), str(attributes.get(EVALUATION_NAME, ""))
        answer = lineage.judged(span)
        if answer is not None and (label or score is not None):
            judges = (span,) if span.kind == OpKind.JUDGE else ()
            explanation = str(attributes.get(EVALUATION_EXPLANATION, ""))
            yield _Evaluation(answer, judges, name, label, score, explanation, time)


def _after(before: _Evaluation, latest: _Evaluation) -> _Evaluation:
    """Combine two evaluations of one name: a second failure without an expected answer keeps the earlier one, and its
    time."""
    if not (before.failing and latest.failing and before.expects) or latest.expects:
        return latest
    return replace(
        latest,
        judges=(*before.judges[:1], *latest.judges),
        explanation=latest.explanation or before.explanation,
        time=before.time,
    )


def _failure(lineage: Lineage, failing: list[_Evaluation]) -> Failure:
    """Return the failure of an answer: the decisive evaluation first, missing fields from the others."""
    evaluation = max(failing, key=lambda one: _weight(lineage, one))
    answer = evaluation.answer
    judged = [judge for one in (evaluation, *failing) for judge in one.judges]
    question = _input(lineage, [answer, *judged], Role.QUERY)
    if not question:
        beside = lineage.in_trace(answer.trace_id)
        question = next(
            (str(s.attributes[GEN_AI_MEMORY_QUERY_TEXT]) for s in beside if GEN_AI_MEMORY_QUERY_TEXT in s.attributes),
            "",
        )
    given = next((o.content for o in answer.outputs if o.ref.startswith(f"{RefKind.ANSWER}:") and o.content), "")
    evidence = [ref for span in (answer, *judged) for ref in span.evidence]
    evidence += [v.ref for span in judged for v in span.inputs if v.role == Role.EVIDENCE]
    return Failure(
        answer_span=answer,
        judge_span=next(iter(evaluation.judges), None),
        evaluation=evaluation.name,
        label=evaluation.label,
        score=evaluation.score,
        explanation=evaluation.explanation,
        question=question,
        answer=given or _input(lineage, judged, Role.ANSWER),
        expected=_input(lineage, judged, Role.EXPECTED),
        evidence=tuple(dict.fromkeys(evidence)),
        lacks_answer=lineage.span(answer.origin) is None,
    )


def _weight(lineage: Lineage, evaluation: _Evaluation) -> tuple[bool, int]:
    expects = bool(_input(lineage, evaluation.judges[:1], Role.EXPECTED))
    return bool(evaluation.judges), evaluation.time if expects else -1


def _input(lineage: Lineage, spans: Sequence[OperationSpan], role: Role) -> str:
    contents = (lineage.content(v, key) for span in spans for v, key in lineage.reads(span) if v.role == role)
    return next((content for content in contents if content), "")
